"""Which layers of a network can lose neurons: those of a chain, where each output is read by one layer alone.

The chain is found by watching one run of the network, so that the way it is written does not matter:
`nn.Sequential`, a `forward` of one's own, functions for modules. What comes before the first layer, such as a
spectrogram, plays no part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NoReturn, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from sottovoce.errors import InputError

Layer = nn.Linear | nn.Conv1d | nn.Conv2d
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
LAYER_CALLS = (functional.linear, functional.conv1d, functional.conv2d)
RESHAPES = frozenset({"flatten", "view", "reshape"})
AVERAGES = frozenset({"mean", "amax"})
APART = RESHAPES | AVERAGES | {
    "relu", "relu_", "leaky_relu", "leaky_relu_", "elu", "elu_", "selu", "celu", "gelu", "silu", "mish",
    "relu6", "softplus", "softsign", "sigmoid", "tanh", "logsigmoid", "hardtanh", "hardtanh_",
    "hardswish", "hardsigmoid", "threshold", "clamp", "dropout", "dropout1d", "dropout2d",
    "feature_dropout", "alpha_dropout", "max_pool1d", "max_pool2d", "_max_pool1d", "_max_pool2d",
    "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "_adaptive_max_pool1d", "_adaptive_max_pool2d", "lp_pool1d", "lp_pool2d",
    "squeeze", "contiguous",
}  # fmt: skip
"""What may happen to neurons between two layers: each of these treats them one by one."""


@final
@dataclass(frozen=True)
class PrunableLayer:
    """A layer whose neurons (of a convolution: feature maps) can go, and the layer that reads them.

    layer, reader: names of modules. norms: batch norms between them.
    """

    layer: str
    reader: str
    norms: tuple[str, ...] = ()


def find_links(module: nn.Module, run: Callable[[], object]) -> list[PrunableLayer]:
    """The links of a chain, from the first layer to the last; raises where the layers form no chain.

    run: lets the module, in evaluation mode, hear an example.
    """
    modes = {each: each.training for each in module.modules()}
    module.eval()
    watch = _Watch(module)
    try:
        with torch.no_grad(), watch:
            run()
    finally:
        for each, mode in modes.items():
            each.training = mode
    return watch.chain()


def layer_of(module: nn.Module, name: str) -> Layer:
    found = module.get_submodule(name)
    assert isinstance(found, LAYERS)
    return found


def width_of(module: nn.Module, name: str) -> int:
    """How many neurons a layer has."""
    return len(layer_of(module, name).weight)


def weights_in(module: nn.Module) -> int:
    """How many weights a module has, biases among them."""
    return sum(value.numel() for value in module.parameters())


def folds_constants(reader: Layer) -> bool:
    """Whether a constant in what is read is as good as a bias: not where zeros are padded around it."""
    if reader.bias is None:
        return False
    if isinstance(reader, nn.Linear) or reader.padding_mode != "zeros":
        return True
    padding = reader.padding
    return padding == "valid" if isinstance(padding, str) else not any(padding)


def without_neurons(module: nn.Module, link: PrunableLayer, kept: Sequence[int], fold: Tensor) -> nn.Module:
    """A copy of the module where a layer has only the neurons `kept`.

    fold: `(neurons, kept + 1)`: what is read of neuron k is taken for `sum_j fold[k, j] read[kept[j]]` and a
        constant, the last column.
    """
    small = deepcopy(module)
    layer, reader = layer_of(small, link.layer), layer_of(small, link.reader)
    _fold(reader, fold)
    places = torch.tensor(list(kept), device=layer.weight.device)
    for part in (layer, *(small.get_submodule(name) for name in link.norms)):
        _take(part, places)
    _set_sizes(small)
    return small


def resize(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Fill a module with the weights of a pruned one: its layers and batch norms get their sizes."""
    for name, each in module.named_modules():
        if isinstance(each, LAYERS + BATCH_NORMS):
            for part, value in _tensors_of(each):
                wanted = state.get(f"{name}.{part}" if name else part)
                if wanted is not None and wanted.shape != value.shape:
                    _put(each, part, value.detach().new_zeros(wanted.shape))
    _set_sizes(module)
    module.load_state_dict(dict(state))


def _fold(reader: Layer, fold: Tensor) -> None:
    """Give a reader weights that read the neurons that are left as it has read all of them."""
    weight = reader.weight.detach()
    # (out, neuron, the places or the taps of a neuron)
    parts = weight.double().reshape(len(weight), len(fold), -1)
    fold = fold.to(parts)
    folded = torch.einsum("okt,kj->ojt", parts, fold[:, :-1]).to(weight.dtype)
    if reader.bias is not None:
        constant = torch.einsum("okt,k->o", parts, fold[:, -1])
        _put(reader, "bias", (reader.bias.detach().double() + constant).to(weight.dtype))
    taps = () if isinstance(reader, nn.Linear) else weight.shape[2:]
    _put(reader, "weight", folded.reshape(len(weight), -1, *taps))


def _take(module: nn.Module, places: Tensor) -> None:
    """Keep some of a layer's neurons, or of a batch norm's channels."""
    for name, value in _tensors_of(module):
        if value.ndim:
            _put(module, name, value.detach()[places])


def _tensors_of(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]


def _put(module: nn.Module, name: str, value: Tensor) -> None:
    """A parameter or a buffer in place of another."""
    old = getattr(module, name)
    trained = isinstance(old, nn.Parameter)
    setattr(module, name, nn.Parameter(value, requires_grad=old.requires_grad) if trained else value)


def _set_sizes(module: nn.Module) -> None:
    """Let layers know the sizes that their weights have."""
    for each in module.modules():
        if isinstance(each, nn.Linear):
            each.out_features, each.in_features = each.weight.shape
        elif isinstance(each, nn.Conv1d | nn.Conv2d):
            each.out_channels, each.in_channels = each.weight.shape[:2]
        elif isinstance(each, BATCH_NORMS) and each.running_mean is not None:
            each.num_features = len(each.running_mean)


@final
class _Watch(TorchFunctionMode):
    """Follows what the first layer says through all that is done with it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._owners = {id(value): name for name, value in _owned(module)}
        self._links: list[PrunableLayer] = []
        self._met: list[str] = []
        self._norms: list[str] = []
        # What layers before the last one have said, and what has become of the last one's.
        self._earlier: list[Tensor] = []
        self._now: list[Tensor] = []
        self._width = 0
        self._mixed = ""

    def chain(self) -> list[PrunableLayer]:
        if not self._links:
            _refuse("a layer behind another one", " and ".join(map(repr, self._met)) or "no layer")
        return self._links

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            name = getattr(func, "__name__", str(func))
            if name in AVERAGES and not _over_places(args, kwargs or {}):
                name = f"{name} over neurons"
            self._note(func, name, list(_tensors((*args, *(kwargs or {}).values()))), out)
        return out

    def _note(self, func: Any, name: str, heard: list[Tensor], out: Tensor) -> None:
        owner = next((self._owners[id(one)] for one in heard if id(one) in self._owners), "")
        if func in LAYER_CALLS and owner:
            if func is functional.linear and out.ndim != 2:
                _refuse(f"{owner!r} to read a row of values a clip", f"shape {tuple(heard[0].shape)}")
            self._layer(owner, heard[0], out)
        elif any(_among(one, self._earlier) for one in heard):
            _refuse("layers in one line", f"{name!r} that reads what came before {self._met[-1]!r} as well")
        elif any(_among(one, self._now) for one in heard):
            self._between(name, owner, heard, out)

    def _layer(self, name: str, heard: Tensor, out: Tensor) -> None:
        if name in self._met:
            _refuse("each layer once", f"{name!r} twice")
        if self._met:
            self._link(name, heard)
        self._met.append(name)
        self._earlier += self._now
        self._norms, self._now, self._mixed, self._width = [], [out], "", out.shape[1]

    def _link(self, name: str, heard: Tensor) -> None:
        last = self._met[-1]
        if not self._now or heard is not self._now[-1]:
            _refuse(f"{name!r} to read what {last!r} says", "it reading something else")
        if self._mixed:
            _refuse(f"neurons to be treated one by one between {last!r} and {name!r}", repr(self._mixed))
        self._links.append(PrunableLayer(last, name, tuple(self._norms)))

    def _between(self, name: str, owner: str, heard: list[Tensor], out: Tensor) -> None:
        now = self._now[-1]
        single = heard[0] is now and sum(_among(one, self._now) for one in heard) == 1
        if name == "batch_norm" and single and owner and now.shape[1] == self._width:
            self._norms.append(owner)
        elif name not in APART or not single or not self._in_place(name, now, out):
            self._mixed = self._mixed or name
        self._now.append(out)

    def _in_place(self, name: str, now: Tensor, out: Tensor) -> bool:
        """Whether each neuron's values are still together, and the neurons in order."""
        if len(out) != len(now):
            return False
        flat = out.ndim == 2 and name in RESHAPES and out.shape[1] == now[0].numel()
        return flat or (out.ndim > 1 and out.shape[1] == now.shape[1])


def _owned(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Which tensors tell that a layer or a batch norm is at work."""
    for name, each in module.named_modules():
        if isinstance(each, LAYERS) and (isinstance(each, nn.Linear) or each.groups == 1):
            yield name, each.weight
        elif isinstance(each, BATCH_NORMS) and each.running_mean is not None:
            yield name, each.running_mean


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _among(one: Tensor, some: Sequence[Tensor]) -> bool:
    return any(one is other for other in some)


def _over_places(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an average runs over the places of a neuron alone, not over clips or neurons."""
    dims = kwargs.get("dim", args[1] if len(args) > 1 else None)
    wanted = [dims] if isinstance(dims, int) else list(dims or [])
    return bool(wanted) and all(dim % args[0].ndim > 1 for dim in wanted)


def _refuse(expected: str, got: str) -> NoReturn:
    raise InputError(
        f"pruning expected {expected}, got {got}; it works on chains of linear layers and convolutions "
        "(with batch norm, activations, pooling, dropout and flattening between them), each read by the next."
    )
