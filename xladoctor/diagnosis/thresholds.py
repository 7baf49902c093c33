"""Where "normal" ends, each line with its evidence.

U: upstream's code or documentation (pytorch/xla); M: a maintainer in a thread of pytorch/xla;
R: seen in real reports; O: ours, no authority.
"""

#: Executions of a program point that belong to its warm-up (first graph, optimizer state that
#: comes into being, gradients that are kept): xladoctor's own definition of "after warm-up".
WARMUP_EXECUTIONS = 3

#: Fewer steps than this, and nothing reused: only the start has been seen. M #2019, #2296 (asked
#: for reports some steps apart).
EARLY_STEPS = 5

#: Reads per step and core. 0.3: M #2019 (log every 10 to 30 steps is right), R (healthy runs stay
#: below); upstream's analyzer complains from 0.5 on.
READS_PER_STEP = 0.3

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
#: Mean seconds from which compilations that were never reused are those of real step graphs and
#: not of the small graphs of set-up, which take milliseconds. M #2422, R.
REAL_GRAPH_SECONDS = 0.5

#: Longest single compilation. U: scan.md mends 63 s to 19 s; upstream's analyzer waits for 300 s.
LONG_COMPILATION_SECONDS = 60.0
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
#: Uploads as a share of the time seen on the device and the links. M #2383; the share is ours.
UPLOAD_SHARE = 0.5

#: Transfers are a consequence of CPU fallbacks if there are this many fallbacks for each. O.
CAUSED_BY_FALLBACKS = 0.5

#: Share of the time after warm-up that the cores waited for their input. O.
INPUT_SHARE = 0.3
#: Steps from which shares of time are worth stating. O.
STEPS_FOR_SHARES = 5
