"""Run by torchrun: the robust losses of two processes, against one process with the whole batch."""

import torch
import torch.distributed as dist

from excessmtl.losses import RobustBCEWithLogits, RobustCrossEntropy, RobustMSELoss, by_task

BATCH, STEPS = 64, 130
MISSING = {RobustCrossEntropy: -100, RobustBCEWithLogits: torch.nan, RobustMSELoss: torch.nan}


def batches(make):
    """Outputs and labels of which 30 % are wrong, nearly all of them in the second half."""
    generator = torch.Generator().manual_seed(0)
    wrong = torch.rand(BATCH, generator=generator) < torch.cat((torch.full((32,), 0.05), torch.full((32,), 0.55)))
    for _ in range(STEPS):
        truth = torch.randint(3, (BATCH,), generator=generator)
        label = torch.where(wrong, torch.randint(3, (BATCH,), generator=generator), truth)
        logits = torch.randn(BATCH, 3, generator=generator) + 4 * torch.nn.functional.one_hot(truth, 3)
        if make is RobustCrossEntropy:
            yield logits, label
        elif make is RobustBCEWithLogits:
            yield logits[:, 1] - logits[:, 0], (label == 1).float()
        else:
            yield truth + 5 + 0.1 * logits[:, 0], label + 5.0


def learned(make, rows, rank, **options):
    """The state after all batches. Some have no label in one process or in both, some are broken in one."""
    loss = make(**options)
    for step, (output, target) in enumerate(batches(make)):
        if step % 7 == 3:
            target[:32] = MISSING[make]
        if step % 11 == 5:
            target[:] = MISSING[make]
        if step % 13 == 6:
            output[40] = torch.nan
        loss(output[rows].requires_grad_(), target[rows])
    if rank == 0:  # alone, so it must not wait for the others
        output, target = next(batches(make))
        with torch.no_grad():
            loss(output[:8], target[:8])
        loss.eval()(output[:8].requires_grad_(), target[:8])
    return torch.cat([value.flatten() for value in loss.state_dict().values()]), loss.noise


def left_out(rank):
    """What `by_task` says to a process without labels of a task, where another one may have some."""
    losses = {task: RobustMSELoss(reduction="none") for task in "ab"}
    outputs = {task: torch.randn(8, requires_grad=True) for task in "ab"}
    try:
        by_task(outputs, {"a": torch.randn(8), "b": None}, ["a", "b"], losses)
    except ValueError as error:
        said = str(error)
    else:
        said = "nothing"
    if rank == 0:  # where nothing is learned, it may be left out
        with torch.no_grad():
            by_task(outputs, {"a": torch.randn(8)}, ["a", "b"], losses)
        for loss in losses.values():
            loss.eval()
        by_task(outputs, {"a": torch.randn(8)}, ["a", "b"], losses)
    return [] if "'b'" in said and "pool=False" in said else [f"a task left out: {said}"]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    # Not halves: the second process has three quarters of each batch.
    mine = slice(0, 16) if rank == 0 else slice(16, BATCH)
    failures = left_out(rank)
    for make in MISSING:
        state, noise = learned(make, mine, rank)
        whole, expected = learned(make, slice(None), 1, pool=False)
        gathered = [torch.empty_like(state) for _ in range(2)]
        dist.all_gather(gathered, state)
        if not torch.equal(*gathered):
            failures.append(f"{make.__name__}: the processes differ")
        if not torch.allclose(state, whole, rtol=1e-4, atol=1e-5):
            failures.append(f"{make.__name__}: two processes {float(noise):.4f}, one {float(expected):.4f}")
        _, alone = learned(make, mine, rank, pool=False)
        if torch.isclose(alone, expected, rtol=0.02):
            failures.append(f"{make.__name__}: half of the batch shows the same, so nothing is tested")
    dist.destroy_process_group()
    assert not failures, failures
    if rank == 0:
        print("all equal")


if __name__ == "__main__":
    main()
