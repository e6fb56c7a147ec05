"""Plain DDP with its own loop: `gavel.torch.should_leave`, `saving` and `newest` are all that it uses of Gavel."""

from __future__ import annotations

import hashlib
import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import gavel
import gavel.torch


def main() -> None:
    last = int(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    saved = 0
    newest = gavel.torch.newest()
    if newest is not None:
        state = torch.load(newest / "state.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        saved = state["step"]
        assert (newest / f"of-{rank}").read_text() == str(saved)
    for step in range(saved + 1, last + 1):
        optimizer.zero_grad()
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(2 * step + rank))
        (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean().backward()
        optimizer.step()
        gavel.report(step, saved=saved)
        if gavel.torch.should_leave():
            with gavel.torch.saving(step) as directory:
                (directory / f"of-{rank}").write_text(str(step))
                if rank == 0:
                    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    torch.save(parts, directory / "state.pt")
            gavel.report(step, saved=step)
            print("left at", step, flush=True)
            return
    digest = hashlib.sha256(b"".join(weight.detach().numpy().tobytes() for weight in model.parameters()))
    print("final", digest.hexdigest())


if __name__ == "__main__":
    main()
    distributed.destroy_process_group()
