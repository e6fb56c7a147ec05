"""Train a small transformer with the Trainer of Hugging Face, preemptible by Gavel.

Without Gavel: `python hf.py --seed 1 --steps 60`, or `torchrun --nproc-per-node 2 hf.py` for two workers.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

import gavel
import gavel.hf


def sentences(count: int = 256, length: int = 12) -> list[dict[str, torch.Tensor]]:
    """Random words; the label says whether the first occurs again."""
    words = torch.randint(2, 40, (count, length), generator=torch.Generator().manual_seed(0))
    labels = (words[:, 1:] == words[:, :1]).any(dim=1).long()
    return [{"input_ids": text, "labels": label} for text, label in zip(words, labels, strict=True)]


def digest(model: torch.nn.Module) -> str:
    """Return what two models have in common only if all of their weights are equal."""
    weights = (weight.detach().cpu().numpy().tobytes() for weight in model.state_dict().values())
    return hashlib.sha256(b"".join(weights)).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    set_seed(arguments.seed)
    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=2
    )
    data = sentences()
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir=str(gavel.checkpoint_dir("hf-checkpoints")),
            seed=arguments.seed,
            max_steps=int(float(os.environ.get("GAVEL_STEPS", arguments.steps))),
            per_device_train_batch_size=8,
            learning_rate=1e-3,
            save_steps=50,
            save_total_limit=2,
            eval_strategy="steps",
            eval_steps=20,
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=data[:192],
        eval_dataset=data[192:],
    )
    gavel.hf.train(trainer)  # ends the program here if the job is preempted
    loss = trainer.evaluate()["eval_loss"]
    if trainer.is_world_process_zero():
        print(f"final loss {loss:.9f} after {trainer.state.global_step} steps, weights {digest(trainer.model)}")


if __name__ == "__main__":
    main()
