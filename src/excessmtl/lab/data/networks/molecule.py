"""A small network on molecules, after SchNet (Schuett et al., NeurIPS 2017): atoms that hear from atoms near them.

It sees distances only, so turning, moving and renumbering a molecule changes nothing.
"""

import torch
from torch import Tensor, nn

ELEMENTS = ("H", "C", "N", "O", "F")
_REACH = 6.0
"""Angstroms from which an atom hears nothing."""
_CENTRES = 32
_ATOMS = 18.0
"""How many a molecule of QM9 has on average."""


class MoleculeNet(nn.Module):
    """Tables of atoms [batch, atoms, 4] -> [batch, width].

    A row is the number of the element, from 1 (0: no atom), and x, y, z in angstroms. Atoms start as a vector of their
    element; in each round an atom adds a function of the sum over all others of their vectors, times a filter that is a
    linear function of Gaussians of the distance. The sum over the atoms is the molecule.
    """

    centres: Tensor

    def __init__(self, width: int = 64, rounds: int = 3) -> None:
        super().__init__()
        self.out_features = width
        self.start = nn.Embedding(len(ELEMENTS) + 1, width, padding_idx=0)
        self.filters = nn.ModuleList(nn.Linear(_CENTRES, width, bias=False) for _ in range(rounds))
        self.updates = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(rounds)
        )
        self.read_out = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.register_buffer("centres", torch.linspace(0.5, _REACH, _CENTRES), persistent=False)

    def forward(self, atoms: Tensor) -> Tensor:
        """(batch, atoms, 4) -> (batch, width)."""
        kinds, places = atoms[..., 0].long(), atoms[..., 1:]
        there = kinds > 0
        edges = self._edges(places, there)
        h = self.start(kinds)
        for filters, update in zip(self.filters, self.updates, strict=True):
            h = h + update((filters(edges) * h[:, None]).sum(2))
        each = torch.where(there[..., None], self.read_out(h), 0)
        return each.sum(1) / _ATOMS

    def _edges(self, places: Tensor, there: Tensor) -> Tensor:
        """[batch, atoms, atoms, centres] Gaussians of the distances, zero for an atom itself and beyond the reach."""
        apart = (places[:, :, None] - places[:, None]).square().sum(-1).add(1e-12).sqrt()
        near = 0.5 * (torch.pi * (apart / _REACH).clamp(max=1)).cos() + 0.5
        pairs = there[:, :, None] & there[:, None] & (apart > 1e-3)
        gaussians = (-((apart[..., None] - self.centres) * _CENTRES / _REACH).square() / 2).exp()
        return gaussians * torch.where(pairs, near, 0)[..., None]
