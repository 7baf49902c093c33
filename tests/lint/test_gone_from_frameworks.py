"""What transformers and TRL have lost, in programs for XLA devices, and what they still have."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows, told_in_files

ASKED = {"XLA801", "XLA905", "XLA906"}
PROGRAMS = {
    "names that transformers has no more": """\
import torch_xla
import transformers
from transformers import AdamW, AutoModelWithLMHead  # !XLA905
from transformers.deepspeed import deepspeed_init  # !XLA905
from transformers.modeling_bert import BertModel  # !XLA905
from transformers.modeling_utils import PreTrainedModel
from transformers.trainer_pt_utils import (
    IterableDatasetShard,
    SequentialDistributedSampler,  # !XLA905
)

optimizer = AdamW(BertModel.from_pretrained("x").parameters())
other = transformers.TextDataset  # !XLA905
known = [one.pretrained_config_archive_map for one in CONFIGURATIONS]  # !XLA905
listed = transformers.BERT_PRETRAINED_MODEL_ARCHIVE_LIST  # !XLA905
heads = transformers.MODEL_WITH_LM_HEAD_MAPPING  # !XLA905
there = transformers.MODEL_FOR_CAUSAL_LM_MAPPING


def block(path, texts):
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    return min(tokenizer.max_len, 512), texts.tokenizer.max_len  # !XLA905
""",
    "names of torch, of today, and where the program is ready for the old ones to be missing": """\
import torch_xla
from torch.optim import AdamW
from transformers import Adafactor, get_scheduler
from transformers.models.bert.modeling_bert import BertModel
from transformers.modeling_outputs import ModelOutput
from transformers.configuration_utils import PretrainedConfig

try:
    from transformers import AdamW as Adam
except ImportError:
    from torch.optim import AdamW as Adam
""",
    "arguments of TrainingArguments": """\
import torch_xla
from transformers import Seq2SeqTrainingArguments, TrainingArguments

first = TrainingArguments(
    "out",
    overwrite_output_dir=True,  # !XLA905
    warmup_ratio=0.1,  # !XLA905
    logging_dir="logs",  # !XLA905
    warmup_steps=0.1,
    logging_strategy="steps",
)
second = Seq2SeqTrainingArguments("out", adafactor=True, predict_with_generate=True)  # !XLA905
third = TrainingArguments("out", train_sampling_strategy="group_by_length")  # !XLA905
""",
    "arguments of TRL's Trainer, which moved to its settings": """\
import torch_xla
from trl import SFTConfig, SFTTrainer


def train(model, data, tokenizer):
    old = SFTConfig("out", max_seq_length=512, packing=True)  # !XLA905
    settings = SFTConfig("out", max_length=512, packing=True, dataset_text_field="text")
    SFTTrainer(model, old, train_dataset=data, tokenizer=tokenizer)  # !XLA905
    SFTTrainer(
        model,
        settings,
        train_dataset=data,
        max_seq_length=512,  # !XLA905
        packing=True,  # !XLA905
    )
    return SFTTrainer(model, settings, train_dataset=data, processing_class=tokenizer)
""",
    "attributes of parsed arguments": """\
import os

import torch_xla
from transformers import HfArgumentParser, Trainer, TrainingArguments
from settings import Data


def main():
    parser = HfArgumentParser((Data, TrainingArguments))
    data, arguments = parser.parse_args_into_dataclasses()
    if os.path.isdir(data.folder) and not arguments.overwrite_output_dir:  # !XLA905
        raise ValueError(data.overwrite_output_dir)
    return arguments.output_dir
""",
    "methods and attributes of the Trainer itself": """\
import torch_xla
from transformers import Trainer


class Own(Trainer):
    def evaluation_loop(self, loader, description, *more, **named):
        for batch in loader:
            loss, logits, labels = self.prediction_step(self.model, batch, False)
            losses = self._nested_gather(loss)  # !XLA905
            losses = self._nested_gather(losses)  # !XLA905
            logits = self.gather_function(logits)
        tokenizer = self.tokenizer  # !XLA905
        return tokenizer.pad_token_id

    def _save_checkpoint(self, model, trial):
        self._rotate_checkpoints(use_mtime=True)  # !XLA905
        return self.processing_class


class WithBoth(Trainer):
    def __init__(self, model, tokenizer):
        super().__init__(model)
        self.kept = tokenizer

    def _nested_gather(self, tensors):
        return self.gather_function(tensors)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        return self._nested_gather(self.kept.pad(inputs))
""",
    "a Trainer of another package keeps its own tokenizer": """\
import torch_xla
from trl import SFTTrainer


class Own(SFTTrainer):
    def compute_loss(self, model, inputs, **kwargs):
        return inputs["labels"] != self.tokenizer.pad_token_id
""",
    "what tokenizers and models of transformers have no more": """\
import torch_xla
from transformers import AutoTokenizer, BertPreTrainedModel

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")


def encode(text, others):
    first = tokenizer.encode_plus(text, max_length=64, padding="max_length")  # !XLA905
    with tokenizer.as_target_tokenizer():  # !XLA905
        second = tokenizer(others)
    third = getattr(tokenizer, "batch_encode_plus", tokenizer)(others)
    tokenizer(text, max_length=64, padding="max_length", truncation=True)
    tokenizer(text, max_length=64, pad_to_max_length=True, truncation=True)  # !XLA905
    return first, second, third, tokenizer.encode(text)


class Net(BertPreTrainedModel):
    def forward(self, batch, heads):
        mask = self.get_head_mask(heads, 12)  # !XLA905
        return self.bert(batch, mask), self.bert.get_head_mask(heads, 12)  # !XLA905
""",
    "a collator on transformers' own": """\
import torch_xla
from transformers import DataCollatorForLanguageModeling


class Whole(DataCollatorForLanguageModeling):
    def __call__(self, rows):
        batch = self.tokenizer.pad(rows, padding="max_length", return_tensors="pt")
        batch["input_ids"], batch["labels"] = self.mask_tokens(batch["input_ids"])  # !XLA905
        return batch


class Own(DataCollatorForLanguageModeling):
    def mask_tokens(self, rows):
        return rows, rows

    def __call__(self, rows):
        return self.mask_tokens(rows)
""",
    "a script that only asks for a TPU": """\
from transformers import Trainer, TrainingArguments, is_torch_tpu_available  # !XLA905


def main(model, data, tokenizer, metrics):
    arguments = TrainingArguments("out", logging_dir="logs", logging_steps=1)  # !XLA905
    trainer = Trainer(
        model,
        arguments,
        train_dataset=data,
        tokenizer=tokenizer,  # !XLA905
        compute_metrics=None if is_torch_tpu_available() else metrics,
    )
    trainer.train()
""",
    "a script that asks for nothing": """\
from transformers import Trainer, TrainingArguments


def main(model, data, tokenizer, metrics):
    arguments = TrainingArguments("out", evaluation_strategy="steps")
    Trainer(model, arguments, train_dataset=data, tokenizer=tokenizer).train()
""",
    "methods of the program's own tokenizer and model": """\
import torch
import torch_xla
from transformers import PreTrainedModel, PreTrainedTokenizer


class Letters(PreTrainedTokenizer):
    def encode_plus(self, text):
        return [ord(letter) for letter in text]


class Masks(torch.nn.Module):
    def get_head_mask(self, heads):
        return heads


class Net(Masks, PreTrainedModel):
    def forward(self, batch, heads):
        return self.get_head_mask(heads), Letters().encode_plus(batch)
""",
    "a class on the Trainer with a loop of its own, and one without": """\
import torch_xla
from transformers import Trainer


class Contrastive(Trainer):
    def train(self, model_path=None):
        return self.inner(model_path)


class Weighted(Trainer):
    def compute_loss(self, model, inputs, num_items_in_batch=None, return_outputs=False):
        return model(**inputs)[0].mean()


def main(model, arguments, path):
    own = Contrastive(model=model, args=arguments)
    own.train(model_path=path)
    theirs = Weighted(model=model, args=arguments)
    theirs.train(model_path=path)  # !XLA905
""",
    "a program that brings its own transformers": """\
import torch_xla
from transformers import AdamW, Trainer
from transformers.our_losses import smoothed


def main(model, arguments, tokenizer):
    trainer = Trainer(model, arguments, tokenizer=tokenizer)
    trainer.train(model_path="out")
    return trainer.is_world_master()
""",
    "names that TRL, PEFT, Accelerate and the modules of transformers have no more": """\
import torch_xla
from accelerate.utils import is_ipex_available, set_seed  # !XLA906
from peft import LoraConfig, get_peft_model, prepare_model_for_int8_training  # !XLA905
from transformers import BertModel, TFBertModel  # !XLA905
from transformers.trainer import (
    Trainer,
    _model_unwrap,  # !XLA905
    nested_concat,  # !XLA905
)
from transformers.trainer_pt_utils import nested_numpify
from trl import (
    DataCollatorForCompletionOnlyLM,  # !XLA905
    SFTTrainer,
)
from trl.core import LengthSampler  # !XLA905

collator = DataCollatorForCompletionOnlyLM("answer:", tokenizer=None)
""",
    "names of one's own, and where the program is ready for theirs to be missing": """\
import torch_xla
import accelerate
from accelerate.utils import gather, is_torch_xla_available
from peft import prepare_model_for_kbit_training
from trl import GRPOTrainer, SFTConfig

try:
    from trl import DataCollatorForCompletionOnlyLM as Completions
except ImportError:
    Completions = None

if hasattr(accelerate.utils, "is_ipex_available"):
    from accelerate.utils import is_ipex_available


class DataCollatorForCompletionOnlyLM:
    def __call__(self, samples):
        return samples


class PPOTrainer:
    pass


collator, trainer = DataCollatorForCompletionOnlyLM(), PPOTrainer()
""",
    "arguments of TRL's other Trainers and of their settings": """\
import torch_xla
from trl import DPOConfig, DPOTrainer, GRPOConfig, RewardTrainer


def train(model, data, tokenizer):
    old = DPOConfig("out", max_prompt_length=64, beta=0.1, max_length=128)  # !XLA905
    GRPOConfig("out", vllm_device="auto", max_completion_length=128)  # !XLA905
    RewardTrainer(model, train_dataset=data, tokenizer=tokenizer)  # !XLA905
    DPOTrainer(model, args=old, beta=0.1, train_dataset=data)  # !XLA905
    return DPOTrainer(model, args=old, processing_class=tokenizer, train_dataset=data)
""",
    "arguments that optimum-neuron's own settings do not take": """\
from optimum.neuron import NeuronSFTConfig, NeuronTrainer, NeuronTrainingArguments
from optimum.neuron.trainers import NeuronTrainingArguments as Settings
from transformers import AutoTokenizer


def train(model, data):
    settings = NeuronTrainingArguments(
        output_dir="out",
        evaluation_strategy="no",  # !XLA905
        tensor_parallel_size=2,
        gradient_checkpointing=True,
        warmup_ratio=0.1,
        logging_steps=1,
    )
    Settings("out", push_to_hub=True, eval_strategy="no")  # !XLA905
    NeuronSFTConfig("out", evaluation_strategy="no")  # !XLA905
    NeuronSFTConfig("out", push_to_hub=True, packing=True)
    return NeuronTrainer(model, settings, train_dataset=data)
""",
    "arguments that come through dictionaries in dictionaries": """\
import torch_xla
from transformers import TrainingArguments


def main(config, path):
    config["trainer"].update(
        {"logging_dir": path, "save_steps": 3},  # !XLA905
        overwrite_output_dir=True,  # !XLA905
    )
    config["trainer"]["warmup_ratio"] = 0.1  # !XLA905
    config["writer"].update({"logging_dir": path}, warmup_ratio=0.1)
    config["writer"]["adafactor"] = True
    return TrainingArguments(**config["trainer"])


def written(path):
    settings = {
        "writer": {"logging_dir": path},
        "trainer": {"logging_dir": path, "output_dir": "out"},  # !XLA905
    }
    return TrainingArguments(**settings["trainer"])
""",
    "attributes of arguments whose class is known": """\
from dataclasses import dataclass, field

import torch
import torch_xla
from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Own(TrainingArguments):
    every: int = field(default=3)

    def where(self):
        return torch.device("cpu") if self.no_cuda else self.device  # !XLA905


class OwnTrainer(Trainer):
    def folders(self):
        return self.args.logging_dir, self.args.output_dir  # !XLA905


def start(arguments: TrainingArguments, other):
    return arguments.warmup_ratio, other.warmup_ratio  # !XLA905


def main():
    (arguments,) = HfArgumentParser((Own,)).parse_args_into_dataclasses()
    if hasattr(arguments, "save_safetensors"):
        print(arguments.save_safetensors)
    return arguments.adafactor, arguments.every  # !XLA905
""",
    "attributes that a class of the program brings itself": """\
from dataclasses import dataclass, field

import torch_xla
from transformers import HfArgumentParser, TrainingArguments


@dataclass
class Own(TrainingArguments):
    save_safetensors: bool = field(default=False)

    @property
    def logging_dir(self):
        return self.output_dir

    def where(self):
        return "cpu" if self.save_safetensors else self.logging_dir


class Settings:
    def __init__(self, adafactor):
        self.kept = adafactor

    def show(self):
        return self.warmup_ratio


def main():
    (arguments,) = HfArgumentParser((Own,)).parse_args_into_dataclasses()
    return arguments.save_safetensors, arguments.logging_dir
""",
    "what a Trainer of one's own asks of the Trainer": """\
import torch_xla
from transformers import Trainer
from trl import SFTTrainer


class Own(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = self.compute_loss(model, inputs)
        if self.use_apex:  # !XLA905
            return loss
        if self.do_grad_scaling:  # !XLA905
            loss = self.scaler.scale(loss)  # !XLA905
        return loss

    def _save_tpu(self, folder):  # !XLA905
        return self.is_fsdp_enabled


class Scaled(Trainer):
    def __init__(self, model, scaler):
        super().__init__(model)
        self.sharded_ddp = None

    def training_step(self, model, inputs, num_items_in_batch=None):
        return self.sharded_ddp or self.state.epoch


class Tuned(SFTTrainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        return self.use_cuda_amp
""",
    "a Trainer of a file that is not there, by names that nothing else has": """\
import os

import torch_xla.core.xla_model as xm
from transformers import HfArgumentParser, Trainer, TrainingArguments, default_data_collator
from core.pairs import PairTrainer
from core.questions import QuestionTrainer


class Often(QuestionTrainer):
    def __init__(self, *args, often=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.by_steps = kwargs["args"].evaluation_strategy == "steps"  # !XLA905
        self.often = often

    def answer(self, rows):
        if self.is_world_master():  # !XLA905
            print(len(rows))
        return self._log({"rows": len(rows)})


def main(settings, model, rows):
    data, training_args = HfArgumentParser((Data, TrainingArguments)).parse_args_into_dataclasses()
    trainer = PairTrainer(
        model=model, args=training_args, train_dataset=rows, data_collator=default_data_collator
    )
    trainer.train(model_path=data.path if os.path.isdir(data.path) else None)  # !XLA905
    if trainer.is_world_master():  # !XLA905
        trainer._log({"rows": len(rows)})  # !XLA905
    mask = model.bert.get_extended_attention_mask(rows.mask, rows.shape)  # !XLA905
    return settings.trainer._log, mask


def report(training_args, options):
    if training_args.save_safetensors:  # !XLA905
        return options.save_safetensors
    return None


def plain(model, rows):
    trainer = Trainer(model=model, train_dataset=rows)
    return trainer.tokenizer  # !XLA905


def _mp_fn(index):
    main(None, None, None)
""",
    "the same names of the program's own classes": """\
import torch_xla.core.xla_model as xm
from transformers import AutoModel, TrainingArguments


class Trainer:
    def __init__(self, args, net):
        self.args, self.net = args, net

    def train(self, model_path=None):
        return self._log({})

    def is_world_master(self):
        return xm.is_master_ordinal()

    def _log(self, rows):
        print(rows)


def main(args, trainer):
    Trainer(args, AutoModel.from_pretrained("x")).train(model_path="x")
    trainer._log({"all": trainer.is_world_master()})
""",
    "what optimum-neuron takes no more, refuses, and has not": """\
from optimum.neuron import NeuronORPOTrainer  # !XLA905
from optimum.neuron import NeuronHfArgumentParser, NeuronTrainingArguments
from optimum.neuron import NeuronTrainer as Trainer
from optimum.neuron.distributed import lazy_load_for_parallelism  # !XLA905
from optimum.neuron.models.training import NeuronModelForCausalLM


def main(model, rows, metrics, tokenizer):
    args = NeuronTrainingArguments(  # !XLA905
        output_dir="out",
        per_device_train_batch_size=2,
        eval_strategy="epoch",  # !XLA905
        optim="adafactor",  # !XLA905
    )
    args = args.set_optimizer(name="adamw_torch")  # !XLA801
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=rows["train"],
        eval_dataset=rows["test"],  # !XLA905
        compute_metrics=metrics,  # !XLA905
        tokenizer=tokenizer,
    )
    trainer.train(resume_from_checkpoint="out/checkpoint-500")  # !XLA905
    trainer.evaluate()  # !XLA801
    trainer.save_model("out")


def parsed(model, rows):
    args = NeuronHfArgumentParser(NeuronTrainingArguments).parse_args_into_dataclasses()[0]
    if args.local_rank in (-1, 0):  # !XLA801
        print(args.output_dir, args.bf16)
    return Trainer(model, args, train_dataset=rows)
""",
    "what optimum-neuron takes": """\
from optimum.neuron import NeuronSFTConfig, NeuronSFTTrainer, NeuronTrainer, NeuronTrainingArguments


class Own(NeuronTrainer):
    def __init__(self, *args, rows=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.rows = rows

    def keep(self):
        self._rotate_checkpoints(use_mtime=True, output_dir=self.args.output_dir)


def main(model, rows, options):
    args = NeuronTrainingArguments(
        "out",
        per_device_train_batch_size=2,
        dataloader_drop_last=True,
        optim="sgd",
        eval_strategy="no",
        warmup_ratio=0.1,
        overwrite_output_dir=True,
    )
    trainer = NeuronTrainer(model, args, train_dataset=rows, eval_dataset=None)
    trainer.train(resume_from_checkpoint=options.resume)
    print(trainer.state.global_step, args.world_size)
    settings = NeuronSFTConfig("out", max_length=512, packing=True)
    return NeuronSFTTrainer(model, settings, train_dataset=rows, processing_class=options.tokenizer)


def forward_alone(model):
    args = NeuronTrainingArguments("out", per_device_train_batch_size=2, do_train=False)
    return model(args.trn_config)
""",
    "a class of the program may have them": """\
import torch_xla
from transformers import HfArgumentParser, Trainer
from settings import Arguments, Data


def main(config):
    data, arguments = HfArgumentParser((Data, Arguments)).parse_args_into_dataclasses()
    return arguments.overwrite_output_dir, config.logging_dir, data.warmup_ratio
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_what_is_gone(program):
    told = {one for one in found(program) if one[1] in ASKED}
    assert told == {one for one in marks(program) if one[1] in ASKED}


def test_programs_without_xla_may_have_their_own_release():
    program = PROGRAMS["names that transformers has no more"].replace("import torch_xla\n", "")
    assert rows(program, "XLA905") == []


NEEDED = """
import sys

from transformers import TrainingArguments


def main():
    try:
        import torch_xla.core.xla_model as xm

        world = xm.xrt_world_size()
        device = xm.xla_device()
    except {caught}:
        {handled}
    return TrainingArguments("out", fp16=True, optim="adamw_torch", dataloader_drop_last=True)
"""


@pytest.mark.parametrize(
    ("caught", "handled"),
    [
        ("ImportError", "sys.exit('needs torch_xla')"),
        ("Exception as error", "raise RuntimeError('no TPU') from error"),
    ],
)
def test_a_program_that_gives_up_without_torch_xla_is_for_xla_devices(caught, handled):
    told = found(NEEDED.format(caught=caught, handled=handled))
    assert {(11, "XLA801"), (12, "XLA802"), (15, "XLA905")} <= set(told)


def test_one_that_goes_on_without_it_is_for_other_devices_too():
    told = found(NEEDED.format(caught="ImportError", handled="device = 'cuda'"))
    assert not [one for one in told if one[1] in ("XLA802", "XLA905")]


def test_a_function_that_takes_torch_xla_whatever_happens():
    program = """
    from transformers import TrainingArguments


    def on_tpu():
        import torch_xla

        return TrainingArguments("out", fp16=True, device=torch_xla.device())


    def anywhere():
        return TrainingArguments("out", fp16=True)
    """
    assert rows(program, "XLA905") == [8]


RUNNER = """
import torch.nn as nn


class Runner:
    def run(self, model, devices):
        model.to(devices[0])
        if {test}:
            model = nn.DataParallel(model)
        return model
"""

START = """
import sys

try:
    import torch_xla.core.xla_model as xm
except ImportError:
    sys.exit("needs torch_xla")
from runner import Runner


def main(model):
    return Runner().run(model, [xm.xla_device()])


main(None)
"""


@pytest.mark.parametrize(
    ("test", "told"), [("model is not None", True), ("len(devices) > 1", False)]
)
def test_devices_that_a_helper_counts_are_gpus(tmp_path, test, told):
    files = {"start.py": START, "runner.py": RUNNER.format(test=test)}
    found = told_in_files(tmp_path, files, {"XLA709"})
    assert found == ({("runner.py", 9, "XLA709")} if told else set())


def test_what_the_trainer_of_transformers_lost_is_nothing_to_lightning():
    program = """
import pytorch_lightning as pl
import torch


class Net(pl.LightningModule):
    def training_step(self, batch, index):
        loss = self(batch).mean()
        self.logger.log_metrics({"loss": loss}, step=self.global_step)
        return loss * self.epoch


pl.Trainer(accelerator="tpu", devices=8).fit(Net())
"""
    assert not {"XLA905", "XLA910"} & {code for _, code in found(program)}


def test_what_the_object_of_accelerate_lost():
    program = """\
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType

accelerator = Accelerator()
if accelerator.distributed_type == DistributedType.XLA:
    print("on a TPU")
dtype = torch.float16 if accelerator.use_fp16 else torch.float32
other = hasattr(accelerator, "use_fp16") and accelerator.use_fp16
kept = accelerator.mixed_precision == "fp16"
"""
    assert rows(program, "XLA906") == [8]


def test_settings_of_a_file_beside_it_are_the_programs_own(tmp_path):
    files = {
        "arguments.py": """\
from dataclasses import field

from transformers import TrainingArguments


class Pretraining(TrainingArguments):
    warmup_ratio: float = field(default=0.1)
""",
        "own.py": """\
from transformers import Trainer


class Own(Trainer):
    def create_optimizer_and_scheduler(self, num_training_steps):
        self.args.warmup_steps = num_training_steps * self.args.warmup_ratio
        super().create_optimizer_and_scheduler(num_training_steps)
""",
        "train.py": """\
import torch_xla
from arguments import Pretraining
from own import Own

Own(model, Pretraining("out", optim="adafactor", dataloader_drop_last=True)).train()
""",
    }
    assert told_in_files(tmp_path, files, ASKED) == set()
    files["arguments.py"] = files["arguments.py"].replace("warmup_ratio", "another")
    assert told_in_files(tmp_path, files, ASKED) == {("own.py", 6, "XLA905")}


def test_a_copy_of_transformers_in_the_project_has_what_it_has(tmp_path):
    files = {
        "train.py": """\
import torch_xla
from transformers.tokenization_utils import PreTrainedTokenizer

PreTrainedTokenizer().encode_plus("text")
""",
        "transformers/__init__.py": "",
        "transformers/tokenization_utils.py": """\
class PreTrainedTokenizer:
    def encode(self, text):
        return self.encode_plus(text, pad_to_max_length=True)
""",
    }
    assert told_in_files(tmp_path, files, ASKED) == set()


def test_weights_and_optimizers_of_bitsandbytes():
    program = """\
import torch
import torch_xla
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments

four = BitsAndBytesConfig(
    load_in_4bit=True,  # !XLA717
    bnb_4bit_compute_dtype=torch.bfloat16,
)
none = BitsAndBytesConfig(load_in_4bit=False)
net = AutoModelForCausalLM.from_pretrained("x", load_in_8bit=True)  # !XLA717
whole = AutoModelForCausalLM.from_pretrained("x", dtype=torch.bfloat16)
paged = TrainingArguments("out", optim="paged_adamw_8bit")  # !XLA717
plain = TrainingArguments("out", optim="adafactor")
"""
    assert {one for one in found(program) if one[1] == "XLA717"} == marks(program)
    either = program.replace(
        "import torch_xla", "try:\n    import torch_xla\nexcept ImportError:\n    torch_xla = None"
    )
    assert rows(either, "XLA717") == []


def test_a_package_for_gpus_into_which_the_program_puts_its_own_code(tmp_path):
    files = {
        "run.py": """import torch_xla
import deepspeed
import adapted

adapted.prepare()
engine, *_ = deepspeed.initialize(model=torch_xla.device())
""",
        "adapted.py": """def prepare():
    import deepspeed
    from deepspeed.runtime.engine import DeepSpeedEngine

    def meet(self):
        return deepspeed.comm

    DeepSpeedEngine.wait = meet
""",
    }
    assert told_in_files(tmp_path, files, {"XLA717"}) == set()
    files["adapted.py"] = files["adapted.py"].replace("DeepSpeedEngine.wait", "meet.wait")
    assert told_in_files(tmp_path, files, {"XLA717"}) == {("run.py", 2, "XLA717")}
