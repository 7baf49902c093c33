"""Where "normal" ends, each line with its evidence.

U: upstream's code or documentation (pytorch/xla); M: a maintainer in a thread of pytorch/xla;
R: seen in real reports; O: ours, no authority.
"""

#: New graphs after warm-up, for one core, up to which it is "a late graph" and not a habit; and the
#: share of the run's time up to which what they cost is information only. O.
FEW_LATE_GRAPHS = 2
SMALL_SHARE = 0.02

#: Steps of one optimizer in one graph from which nothing has ended the graph: where it ends at a
#: read or at the end of the program, which nobody means to end steps; and where the program ends it
#: itself (a sync every few steps is a choice, a dozen is none). O.
STEPS_IN_A_GRAPH = 5
STEPS_IN_A_GRAPH_AT_WILL = 12

#: Executions of a program point that belong to its warm-up (first graph, optimizer state that
#: comes into being, gradients that are kept): xladoctor's own definition of "after warm-up".
WARMUP_EXECUTIONS = 3

#: Fewer steps than this, and nothing reused: only the start has been seen. M #2019, #2296 (asked
#: for reports some steps apart).
EARLY_STEPS = 5

#: Reads per step and core. 0.3: M #2019 (log every 10 to 30 steps is right), R (healthy runs stay
#: below); upstream's analyzer complains from 0.5 on.
READS_PER_STEP = 0.3

#: Reads per step from which a *line* of a recorded run holds up the steps: torch_xla's own analyzer
#: (runtime/metrics_analysis.cpp) complains above 0.5. A read once per epoch stays below it even
#: when an epoch has three steps.
LINE_READS_PER_STEP = 0.5

#: Reads per batch of an evaluation loop from which its every batch reads: less is a read at the end
#: of each evaluation. O.
EVALUATION_READS_PER_BATCH = 0.9

#: Reads per execution where steps are not counted: a read after nearly each execution. R, O.
READS_PER_EXECUTION = 0.3

#: Fewest reads or executions from which a rate is worth stating. O.
FEWEST_SAMPLES = 10
#: The same for one line of a recorded run, where the line is known. O.
FEWEST_READS_OF_A_LINE = 3

#: A single scalar is at most this many bytes. M #1412, R.
SCALAR_BYTES = 8.0

#: Share of new graphs among all graph look-ups. 0.5: U (CompileTime frequency).
NEW_GRAPHS_SHARE = 0.5
#: More new graphs than a settled program has (R: 2 to 20), and still this share of all. O.
SETTLED_GRAPHS = 20
MANY_NEW_GRAPHS_SHARE = 0.2
#: Other sizes of what the cores exchange in memory that are worth a word: a checkpoint's file name
#: that grows by a letter is not (R: Lightning broadcasts it). O.
FEWEST_SIZES_EXCHANGED = 4
#: Typical seconds from which compilations that were never reused are those of real step graphs and
#: not of the small graphs of set-up, which take milliseconds. M #2422, R.
REAL_GRAPH_SECONDS = 0.5
#: So many small graphs without any reuse are no set-up any more. R (15 and 21 in set-up). O.
SETUP_GRAPHS = 50
#: So many graphs are too many, however often each was used. R (settled programs: 2 to 20); M #2511
#: (500 called "hundreds of recompiles"). The line is ours.
FAR_TOO_MANY_GRAPHS = 100

#: Longest single compilation. U: scan.md brings 63 s to 19 s; upstream's analyzer waits for 300 s.
LONG_COMPILATION_SECONDS = 60.0
#: The same at the start of a program, where nothing can have been amortised yet. U (the analyzer).
LONG_FIRST_COMPILATION_SECONDS = 300.0
#: ... which nobody regrets if executions have taken this many times as long. M #1155, #2296.
AMORTISED = 4.0

#: Nodes of a graph. M #1155: 136,000 nodes took 4 minutes; R: a BERT step has 2,000 to 6,000. O.
HUGE_GRAPH_NODES = 50_000.0
#: Tensors that exist while nothing has been executed. R (35,594 after 307 steps without a sync).
UNCUT_TENSORS = 10_000

#: Evictions and compactions per step. U (metrics_analysis.cpp).
MEMORY_EVENTS_PER_STEP = 0.1

#: Seconds from which host work that nothing hides is worth a finding. O.
WORTH_SECONDS = 10.0
#: DeviceLockWait as a share of LazyTracing below which the device never made the host wait. O.
IDLE_LOCK_SHARE = 0.05
#: Share of the wall time in which the device had nothing to do, from which the host is what is
#: slow; the same share of that time in tracing makes tracing the cause. M #1155 (read from these
#: two numbers there); the share is ours.
IDLE_SHARE = 0.5
#: DeviceLockWait as a share of ExecuteTime from which the program is bound by its device, as it
#: should be. O.
BUSY_LOCK_SHARE = 0.5
#: Uploads of a batch that weigh on the link: megabytes. R (12 minutes in 1,133 uploads); M #2383.
LARGE_UPLOAD_BYTES = 2.0**20
#: Uploads as a share of the time seen on the device and the links. M #2383; the share is ours.
UPLOAD_SHARE = 0.5

#: Transfers are a consequence of CPU fallbacks if there are this many fallbacks for each. O.
CAUSED_BY_FALLBACKS = 0.5

#: Share of the time after warm-up that the cores waited for their input. O.
INPUT_SHARE = 0.3
#: Operations of eager mode per step from which the step itself runs in it; what stands around a
#: compiled step (random inputs, a log) are a few. R (2 and 610 in upstream's two examples); O.
EAGER_OPERATIONS_PER_STEP = 20
#: Batches that a device loader takes together (``device_prefetch_size``), so that a loader which is
#: too slow is waited for once in so many steps. U (parallel_loader.py).
BATCHES_TAKEN_TOGETHER = 8
#: Steps from which shares of time are worth stating. O.
STEPS_FOR_SHARES = 5

#: Samples that a metric keeps; percentiles and rates are of these. U (XLA_METRICS_SAMPLES).
KEPT_SAMPLES = 1024
#: Fewest steps from which executions per step are a habit of the program and not its set-up. O.
STEADY_STEPS = 20
#: Executions per step: 1 is ideal, 2 with a graph for evaluation or logging. R (3 in a report whose
#: step was cut by reads); M #4523 (5 a step brought down to 3). The line is ours.
GRAPHS_PER_STEP = 2.0
#: ... below this, more step ends than graphs: most of them end nothing. O.
EMPTY_STEP_ENDS = 0.5
#: Compilations that are tiny in the middle and huge at the top: reads cut the graph, and what is
#: left of the step is one big piece. M #2422 (80 % under 3 ms, three of 4 to 6 minutes).
TINY_COMPILATION_SECONDS = 0.05
BIG_COMPILATION_SECONDS = 10.0
#: Constants sent to the device one by one, per step. M #6193, #2636 (a scalar a step is normal);
#: R (2 per execution). The line is ours.
CONSTANTS_PER_STEP = 10.0
#: Tensors that set-up sends this way: the weights and states of a large model. R (1,046).
SETUP_CONSTANTS = 1_000
#: Misses of the compilation cache on disk when it has been used before: hits tell that it has. O.
CACHE_MISSES = 3
#: Graphs that Dynamo captured for one program: forward and backward of training and evaluation. O.
CAPTURED_GRAPHS = 8
#: Inputs that had to be computed first, per call of a compiled graph. M #4523.
PENDING_INPUTS_PER_CALL = 0.5
#: Tensors or buffers that each further step leaves alive. O; R (a difference of 823, but stable).
TENSORS_KEPT_PER_STEP = 1.0
#: Execution time of one core against the median of all: the others wait in its collectives. O;
#: M #2690 compares the workers of a pod in this way.
CORE_TIME_RATIO = 1.5
#: Memory of one core in GiB. U (documentation of Cloud TPU).
CORE_MEMORY_GIB = (("TPU v2", 8), ("v3 or v5e", 16), ("v4 or v6e", 32), ("v5p", 95))
#: Share of a graph's inputs that are given back to its outputs, below which the state of training
#: is held twice: parameters and optimizer state are most of the inputs of a step. O.
DONATED_SHARE = 0.1
#: Bytes of inputs from which that matters. O.
DONATION_BYTES = 2**30
#: Parameters from which a model may be large enough for that, where bytes are not known. O.
MANY_PARAMETERS = 100
#: Samples of which the printed 99 % is the largest: it is number floor(0.99 n) of the sorted ones.
#: U (metrics.cpp).
PERCENTILE_IS_LARGEST = 100
#: A read that takes this long for a few bytes has waited for the graph. M #2296.
WAITED_READ_SECONDS = 0.05
#: Share of a step's device time from which a cost that the TPU compiler shows is a finding. O.
TPU_SHARE = 0.05
#: The same as share of the whole step (the longer of host and device): less, and another change
#: comes first. O.
TPU_STEP_SHARE = 0.05
#: Stored over real size of a tensor from which padding is worth a word: 96 -> 128 is 1.33. O.
TPU_PADDED = 1.3
#: Part of the step in which the device waits for the host, from which that is a finding. As for
#: reports (IDLE_SHARE), but of an estimate. O.
TPU_IDLE_SHARE = 0.5
#: Bytes moved over what the memory could move, from which a step is bound by memory. O.
TPU_MEMORY_BOUND = 0.5
#: Bytes of a gather or scatter from which it is worth a word: 10 us at 1 TB/s. O.
TPU_GATHER_BYTES = 10 * 2**20
#: Bytes below which a collective costs its latency, and how many of them in a step are many. O.
TPU_SMALL_COLLECTIVE, TPU_MANY_COLLECTIVES = 2**20, 8
#: Share of the parameters and optimizer state of a device (of inputs: of the largest one) from
#: which a tensor that every device holds whole is worth a word. O.
REPLICATED_SHARE = 0.1
#: Padding of a sharded tensor, as share of what a device would hold of it, from which that is. O.
UNEVEN_SHARE = 0.05
#: Tensors that a sentence names.
NAMED_TENSORS = 3

# -- cores that lag behind (recorded runs) ---------------------------------------------------------
# O: simulated cores of one process share a Python, so their work varies with their neighbours';
# tests/diagnosis/test_lagging.py holds that recorded healthy runs are left alone.
#: As many cores at least: of two nobody can say which is usual.
LAGGING_CORES = 4
#: Steps after warm-up at least.
LAGGING_STEPS = 10
#: More work than usual by so much of a step.
LAGGING_SHARE = 0.1
#: And by so many times the median deviation between cores.
LAGGING_SPREADS = 6.0
#: At most one core of so many lags; if there are more, there are two kinds of cores.
LAGGING_MOST = 3
