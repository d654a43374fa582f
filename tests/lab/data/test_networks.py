import pytest
import torch
from torch import nn

from excessmtl.lab.data.networks import MLP, LeNet, ResNet18, SegNet, dense_head


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("make", "size", "parameters", "features"),
    [
        (lambda: LeNet(28), (1, 28, 28), 30_960, 80),
        (lambda: LeNet(36), (1, 36, 36), 62_960, 80),
        (lambda: LeNet(56), (1, 56, 56), 198_960, 80),
        (ResNet18, (3, 64, 64), 11_176_512, 512),
        (lambda: MLP(21), (21,), 35_840, 128),
    ],
)
def test_a_trunk_has_the_parameters_of_the_paper(make, size, parameters, features):
    net = make()
    assert count(net) == parameters
    outputs = net(torch.randn(3, *size))
    assert outputs.shape == (3, net.out_features) == (3, features)
    assert (outputs >= 0).all()


def test_resnet18_ends_in_seven_by_seven_maps_at_full_size():
    net = ResNet18().eval()
    with torch.no_grad():
        assert net.stages(net.stem(torch.rand(1, 3, 224, 224))).shape == (1, 512, 7, 7)


def test_segnet_has_the_peers_parameters():
    innermost = 6 * (512 * 512 * 9 + 512 + 2 * 512)
    assert (count(SegNet(levels=5)), count(SegNet())) == (24_943_296, 24_943_296 - innermost)


@pytest.mark.parametrize(
    ("make", "message"),
    [*((lambda n=n: SegNet(n), f"levels is {n}") for n in (0, 6)), (lambda: MLP(21, layers=0), "layers is 0")],
)
def test_impossible_sizes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", [(32, 64), (37, 51)])
def test_segnet_keeps_the_size_of_the_image(levels, size):
    net = SegNet(levels, width=4)
    assert net(torch.rand(2, 3, *size)).shape == (2, net.out_features, *size) == (2, 4, *size)


def test_segnet_starts_with_zero_bias_and_xavier_weights():
    torch.manual_seed(0)
    convolutions = [m for m in SegNet(levels=4, width=16).modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 2 * (2 + 2 + 3 + 3)
    for conv in convolutions:
        assert conv.bias is not None
        assert not conv.bias.any()
    widest = max(convolutions, key=lambda c: c.weight.numel())
    expected = (2 / (9 * (widest.in_channels + widest.out_channels))) ** 0.5
    assert widest.weight.std().item() == pytest.approx(expected, rel=0.02)


def test_dense_head_is_affine():
    head = dense_head(4, 2)
    assert head(torch.rand(2, 4, 6, 8)).shape == (2, 2, 6, 8)
    a, b = torch.randn(1, 4, 5, 5), torch.randn(1, 4, 5, 5)
    zero = head(torch.zeros_like(a))
    torch.testing.assert_close(head(a + b) - zero, head(a) - zero + head(b) - zero)
