"""Run by two processes: every integration with half a batch each, against one process with the whole batch."""

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import torch.distributed as dist
from accelerate import Accelerator
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler
from two_processes_worker import check_equal, main

sys.path.insert(0, str(Path(__file__).parents[1]))
from excessmtl.integrations import MatrixLoss, accelerate, fabric
from integrations.integration_worlds import BATCH, Model, balancer_of, by_hand, dataset, flat, loader, optimizer_of
from integrations.test_huggingface import trainer as huggingface_trainer
from integrations.test_lightning import Module, trainer

HALF = BATCH // 2
EXPECTED = {count: by_hand(micro_batches=count)[0] for count in (1, 2)}
"""By the number of micro-batches; before there are two processes."""


def with_fabric(precision, find_unused):
    strategy = DDPStrategy(find_unused_parameters=find_unused, process_group_backend="gloo")
    made = Fabric(accelerator="cpu", devices=2, precision=precision, strategy=strategy)
    made.launch()
    model = Model()
    wrapped, optimizer = made.setup(model, optimizer_of(model))
    balancer = balancer_of(model)
    for batch in made.setup_dataloaders(loader(size=HALF)):
        optimizer.zero_grad()
        fabric.backward(made, balancer, wrapped(**batch)["losses"])
        optimizer.step()
    return model


def with_lightning(manual, find_unused, micro_batches=1):
    module = Module(manual=micro_batches if manual else 0)
    options = {} if manual else {"accumulate_grad_batches": micro_batches}
    strategy = pl.strategies.DDPStrategy(find_unused_parameters=find_unused, process_group_backend="gloo")
    options |= {"devices": 2, "strategy": strategy, "limit_val_batches": 0, "use_distributed_sampler": False}
    made = trainer(tempfile.mkdtemp(), **options)
    # Lightning would shuffle.
    sampler = DistributedSampler(dataset(), 2, int(os.environ["RANK"]), shuffle=False)
    made.fit(module, DataLoader(dataset(), batch_size=HALF, sampler=sampler))
    return module.model


def with_accelerate(micro_batches):
    made = Accelerator(cpu=True, gradient_accumulation_steps=micro_batches)
    model = Model()
    wrapped, optimizer, batches = made.prepare(model, optimizer_of(model), loader(size=HALF))
    balancer = balancer_of(model)
    for batch in batches:
        with made.accumulate(wrapped):
            accelerate.backward(made, balancer, wrapped(**batch)["losses"])
            optimizer.step()
            optimizer.zero_grad()
    return model


def with_huggingface(micro_batches):
    options = {"per_device_train_batch_size": HALF, "save_strategy": "no", "ddp_backend": "gloo"}
    made = huggingface_trainer(tempfile.mkdtemp(), micro_batches, **options)
    made.train()
    return made.model


def with_matrix(per_task):
    model = Model()
    wrapped, optimizer = nn.parallel.DistributedDataParallel(model), optimizer_of(model)
    criterion = MatrixLoss(balancer_of(model), mse_loss, columns=model.heads.values())
    sampler = DistributedSampler(dataset(), 2, dist.get_rank(), shuffle=False)
    for batch in DataLoader(dataset(), batch_size=HALF, sampler=sampler):
        optimizer.zero_grad()
        outputs = wrapped(**batch)["logits"]
        if per_task:
            loss = sum(one(outputs[:, i], batch["y"][:, i]) for i, one in enumerate(criterion.per_task()))
        else:
            loss = criterion(outputs, batch["y"])
        loss.backward()
        optimizer.step()
    return model


CASES = {
    "accelerate": (with_accelerate, (1,), 1),
    "accelerate, micro-batches": (with_accelerate, (2,), 2),
    "huggingface": (with_huggingface, (1,), 1),
    "huggingface, micro-batches": (with_huggingface, (2,), 2),
    "fabric": (with_fabric, ("32-true", False), 1),
    "fabric, find_unused_parameters": (with_fabric, ("32-true", True), 1),
    "fabric, bf16": (with_fabric, ("bf16-mixed", False), 1),
    "matrix": (with_matrix, (False,), 1),
    "matrix, column by column": (with_matrix, (True,), 1),
    "lightning": (with_lightning, (False, False), 1),
    "lightning, find_unused_parameters": (with_lightning, (False, True), 1),
    "lightning, micro-batches": (with_lightning, (False, False, 2), 2),
    "lightning, manual": (with_lightning, (True, False), 1),
    "lightning, manual, find_unused_parameters": (with_lightning, (True, True), 1),
}


def as_one_process(name):
    train, arguments, micro_batches = CASES[name]
    check_equal(name, flat(train(*arguments)), EXPECTED[micro_batches], atol=1e-2 if "bf16" in name else 1e-4)


SCENARIOS = {name: partial(as_one_process, name) for name in CASES}

if __name__ == "__main__":
    main(SCENARIOS)
