"""Hard parameter sharing: one encoder for all tasks, a head for each. Caruana 1997."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from excessmtl.architectures.base import MultiTask


class HardSharing(MultiTask):
    """encoder -> heads.

    Args:
        encoder: From the inputs to the features of all tasks.
        heads: Task -> head.
    """

    def __init__(self, encoder: nn.Module, heads: Mapping[str, nn.Module]) -> None:
        super().__init__(heads)
        self.encoder = encoder

    @property
    def shared(self) -> nn.Module:
        """The encoder."""
        return self.encoder

    def features(self, inputs: Tensor, tasks: Sequence[str]) -> dict[str, Tensor]:
        """The same for all."""
        z = self.encoder(inputs)
        return dict.fromkeys(tasks, z)
