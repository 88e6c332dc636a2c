import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from graphclean.training.losses import Positives, contrastive_losses, mixup_cross_entropy
from graphclean.training.schedule import total_loss

KINDS: tuple[Positives, ...] = ("release", "paper")
SELECTIONS: dict[str, Callable[[int], Tensor]] = {
    "none": lambda n: torch.zeros(n, dtype=torch.bool),
    "one": lambda n: torch.arange(n) == 1,
    "all": lambda n: torch.ones(n, dtype=torch.bool),
    "some": lambda n: torch.arange(n) % 3 != 0,
}

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def batch(n: int, n_classes: int, seed: int, d: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Unit embeddings of two views in float64, and labels."""
    g = torch.Generator().manual_seed(seed)
    weak, strong = (normalize(torch.randn(n, d, generator=g, dtype=torch.float64), dim=1) for _ in range(2))
    return weak, strong, torch.randint(0, n_classes, (n,), generator=g)


def by_loops(
    weak: Tensor, strong: Tensor, labels: Tensor, selected: Tensor, tau1: float, tau2: float, kind: Positives
) -> tuple[float, float]:
    """Eq. 5 and 6 with sets of (view, sample), as they are written."""
    n, views = len(weak), {"weak": weak.tolist(), "strong": strong.tolist()}
    y, g = labels.tolist(), [int(one) for one in selected.tolist()]

    def exp(i: int, a: tuple[str, int], tau: float) -> float:
        dot = sum(p * q for p, q in zip(views["weak"][i], views[a[0]][a[1]], strict=True))
        return math.exp(dot / tau)

    inst = subgraph = 0.0
    for i in range(n):
        A = [("weak", a) for a in range(n) if a != i] + [("strong", a) for a in range(n)]
        assert len(A) == 2 * n - 1
        inst -= math.log(exp(i, ("strong", i), tau1) / sum(exp(i, a, tau1) for a in A))
        P = {(view, p) for view, p in A if y[p] == y[i] and g[p] + g[i] == 2}
        if kind == "release":
            P |= {("strong", i)}
        for p in P:
            subgraph -= math.log(exp(i, p, tau2) / sum(exp(i, a, tau2) for a in A)) / len(P)
    return inst / n, subgraph / n


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(
    ("n", "n_classes", "seed"), [(9, 2, 0), (9, 2, 1), (11, 5, 2), (7, 100, 3), (1, 3, 4)]
)
def test_losses_are_those_of_the_formulas(
    kind: Positives, selection: str, n: int, n_classes: int, seed: int
) -> None:
    weak, strong, labels = batch(n, n_classes, seed)
    selected = SELECTIONS[selection](n)
    for taus in ((0.3, 1.0), (1.0, 0.1)):
        found = contrastive_losses(
            weak, strong, labels, selected, tau_inst=taus[0], tau_subgraph=taus[1], positives=kind
        )
        expected = by_loops(weak, strong, labels, selected, *taus, kind)
        assert (float(found.inst), float(found.subgraph)) == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_two_samples_by_hand() -> None:
    """Orthogonal embeddings, all selected and alike: only the own strong view is near, at similarity 1."""
    z, alike = torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.long)
    inst, subgraph = contrastive_losses(z, z, alike, torch.ones(2), tau_inst=0.5)
    assert float(inst) == pytest.approx(math.log(2 + math.exp(2)) - 2)
    assert float(subgraph) == pytest.approx(math.log(2 + math.e) - 1 / 3)


def test_positives_differ_only_for_unselected_anchors() -> None:
    """A selected anchor has its own strong view in P(i) by the paper's formula already."""
    weak, strong, labels = batch(10, 3, 0)
    of = partial(contrastive_losses, weak, strong, labels)
    every, some = torch.ones(10), SELECTIONS["some"](10)
    assert of(every, positives="paper") == of(every, positives="release")
    gap = of(some, positives="release").subgraph - of(some, positives="paper").subgraph
    alone = contrastive_losses(weak, strong, torch.arange(10), every, tau_inst=1.0)  # Eq. 5 at Eq. 6's τ
    share = [by_loops_own(weak, strong, i) for i in range(10) if not some[i]]
    assert float(gap) == pytest.approx(sum(share) / 10)
    assert float(alone.inst) == pytest.approx(float(alone.subgraph))


def by_loops_own(weak: Tensor, strong: Tensor, i: int) -> float:
    """The term of anchor i when its own strong view is the one positive, at τ = 1."""
    others = torch.cat([weak[:i], weak[i + 1 :], strong])
    return float((others @ weak[i]).exp().sum().log() - strong[i] @ weak[i])


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_selection_labels_do_not_matter(kind: Positives) -> None:
    weak, strong, labels = batch(8, 3, 0)
    none = torch.zeros(8)
    found = contrastive_losses(weak, strong, labels, none, positives=kind)
    other = contrastive_losses(weak, strong, (labels + 1) % 2, none, positives=kind)
    assert found == other
    if kind == "paper":
        assert float(found.subgraph) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_order_in_the_batch_does_not_matter(kind: Positives) -> None:
    weak, strong, labels = batch(12, 3, 5)
    selected = SELECTIONS["some"](12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    found = contrastive_losses(weak, strong, labels, selected, positives=kind)
    moved = contrastive_losses(weak[order], strong[order], labels[order], selected[order], positives=kind)
    torch.testing.assert_close(moved, found)


def test_masks_may_be_numbers() -> None:
    weak, strong, labels = batch(8, 2, 0)
    selected = SELECTIONS["some"](8)
    found = contrastive_losses(weak, strong, labels, selected)
    for kind in (torch.float32, torch.uint8):
        assert contrastive_losses(weak, strong, labels, selected.to(kind)) == found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("n", [1, 5])
def test_gradients(kind: Positives, selection: str, n: int) -> None:
    weak, strong, labels = batch(n, 2, 7, d=3)
    views = (weak.requires_grad_(), strong.requires_grad_())

    def losses(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return contrastive_losses(a, b, labels, SELECTIONS[selection](n), positives=kind)

    assert torch.autograd.gradcheck(losses, views)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_sharp_temperatures_and_equal_embeddings_stay_finite(kind: Positives, selection: str) -> None:
    """exp(1 / 0.005) is beyond float32, and identical embeddings leave nothing to tell apart."""
    z = normalize(torch.ones(6, 4), dim=1)
    for weak in (z.clone().requires_grad_(), (-z).requires_grad_()):
        inst, subgraph = contrastive_losses(
            weak,
            z,
            torch.arange(6) % 4,
            SELECTIONS[selection](6),
            tau_inst=0.005,
            tau_subgraph=0.005,
            positives=kind,
        )
        (inst + subgraph).backward()
        assert inst.isfinite()
        assert subgraph.isfinite()
        assert weak.grad is not None
        assert weak.grad.isfinite().all()


def test_nothing_selected_gives_the_papers_loss_no_gradient() -> None:
    weak, strong, labels = batch(5, 2, 0)
    weak.requires_grad_()
    contrastive_losses(weak, strong, labels, torch.zeros(5), positives="paper").subgraph.backward()
    assert weak.grad is not None
    assert not weak.grad.any()


def test_half_precision_is_raised_to_float32() -> None:
    weak, strong, labels = batch(8, 2, 0)
    low = (weak.bfloat16(), strong.bfloat16())
    found = contrastive_losses(*low, labels, torch.ones(8))
    assert found == contrastive_losses(low[0].float(), low[1].float(), labels, torch.ones(8))
    assert found.inst.dtype == found.subgraph.dtype == torch.float32
    logits, ones = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).bfloat16(), torch.ones(8)
    ce = mixup_cross_entropy(logits, labels, labels, 0.5, ones)
    assert ce.dtype == torch.float32
    assert float(ce) == pytest.approx(float(cross_entropy(logits.float(), labels)))


def test_unknown_positives_are_refused() -> None:
    weak, strong, labels = batch(3, 2, 0)
    with pytest.raises(ValueError, match="'release' or 'paper', not 'all'"):
        contrastive_losses(weak, strong, labels, torch.ones(3), positives="all")  # type: ignore[arg-type]


def test_mixup_is_cross_entropy_against_mixed_targets() -> None:
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(10, 4, generator=g, dtype=torch.float64)
    a, b = torch.randint(0, 4, (2, 10), generator=g)
    weight = torch.tensor([1.0, 0, 1, 1, 0, 1, 0, 1, 1, 1])
    for lam in (torch.tensor(0.3, dtype=torch.float64), torch.rand(10, generator=g, dtype=torch.float64)):
        targets = torch.zeros(10, 4, dtype=torch.float64)
        for i in range(10):
            share = float(lam) if lam.ndim == 0 else float(lam[i])
            targets[i, a[i]] += share
            targets[i, b[i]] += 1 - share
        expected = cross_entropy(logits[weight > 0], targets[weight > 0])
        torch.testing.assert_close(mixup_cross_entropy(logits, a, b, lam, weight), expected)


def test_mixup_of_fillers_alone_is_nothing() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    loss = mixup_cross_entropy(logits, torch.arange(4) % 3, torch.arange(4) % 2, 0.4, torch.zeros(4))
    loss.backward()
    assert float(loss.detach()) == 0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_mixup_gradients_leave_out_fillers() -> None:
    logits = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    a, b, weight = torch.tensor([0, 1, 2, 0]), torch.tensor([2, 1, 0, 1]), torch.tensor([1.0, 1, 0, 1])
    assert torch.autograd.gradcheck(lambda x: mixup_cross_entropy(x, a, b, 0.7, weight), (logits,))
    mixup_cross_entropy(logits, a, b, 0.7, weight).backward()
    assert logits.grad is not None
    assert logits.grad.abs().sum(1).gt(0).tolist() == [True, True, False, True]


def test_total_weighs_its_terms() -> None:
    losses = dict(zip(("ce", "inst", "subgraph"), torch.tensor([1.0, 10.0, 100.0]), strict=True))
    assert float(total_loss(losses, {"ce": 1.0, "inst": 1.0, "subgraph": 1.0})) == 111
    assert float(total_loss(losses, {"ce": 1.0, "inst": 0.5, "subgraph": 2.0})) == 206
    # A step may leave out some of them.
    del losses["ce"]
    assert float(total_loss(losses, {"ce": 1.0, "inst": 0.5, "subgraph": 2.0})) == 205


def test_one_graph_serves_every_selection() -> None:
    """Compiled whole: nothing inside depends on values, so other selections need no new graph."""
    graphs = []

    def keep(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    def step(weak: Tensor, strong: Tensor, labels: Tensor, selected: Tensor) -> Tensor:
        found = contrastive_losses(weak, strong, labels, selected)
        ce = mixup_cross_entropy(weak, labels, labels.flip(0), 0.3, selected)
        weights = {"ce": 1.0, "inst": 1.0, "subgraph": 0.5}
        return total_loss({"ce": ce, **found._asdict()}, weights)

    compiled = torch.compile(step, fullgraph=True, dynamic=False, backend=keep)
    views = batch(8, 3, 0)
    for selection in SELECTIONS.values():
        torch.testing.assert_close(compiled(*views, selection(8)), step(*views, selection(8)))
    assert len(graphs) == 1


@on_cuda
def test_on_cuda_no_host_sync_and_no_bf16_inside() -> None:
    weak, strong, labels = (part.cuda() for part in batch(32, 4, 0))
    weak, strong, selected = weak.float(), strong.float(), SELECTIONS["some"](32).cuda()
    logits, weight = 3 * weak[:, :4].contiguous(), selected.float()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found = contrastive_losses(weak, strong, labels, selected)
            ce = mixup_cross_entropy(logits, labels, labels.flip(0), 0.3, weight)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert found == contrastive_losses(weak, strong, labels, selected)
    expected = by_loops(weak.cpu(), strong.cpu(), labels.cpu(), selected.cpu(), 0.3, 1.0, "release")
    assert (float(found.inst), float(found.subgraph)) == pytest.approx(expected, rel=1e-4)
    plain = mixup_cross_entropy(logits.cpu(), labels.cpu(), labels.cpu().flip(0), 0.3, weight.cpu())
    assert float(ce) == pytest.approx(float(plain), rel=1e-5)
