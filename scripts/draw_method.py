"""Draw the figures of docs/method.md as SVG files in docs/images: python scripts/draw_method.py."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "images"
# Okabe and Ito's colours, told apart by people who see few of them; shapes and words say the same once more.
STYLE = """
.card { fill: #fcfcfb; stroke: #d0d0cc }
text { fill: #1f2328; font: 14px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif }
.strong { font-weight: 600 } .small { font-size: 12.5px } .dim { fill: #57606a }
.line { stroke: #57606a; fill: none; stroke-width: 1.5 } .tip { fill: #57606a }
.plain { fill: #ffffff; stroke: #8c959f } .used { fill: #c4c9cf; stroke: #8c959f }
.probe { fill: #f3c65c; stroke: #a06c00 } .chosen { fill: #0072b2; stroke: #00456b }
.fresh { fill: #009e73; stroke: #00583f } .frozen { fill: #e6e8eb; stroke: #8c959f }
.grid { stroke: #8c959f; fill: none; stroke-width: 0.6; opacity: 0.6 } .on-fresh { fill: #10151c }
.mark { fill: none; stroke: #ffffff; stroke-width: 1.6 } .pin { fill: #57606a }
.a { stroke: #d55e00; fill: none } .b { stroke: #0072b2; fill: none }
.c { stroke: #009e73; fill: none } .d { stroke: #cc79a7; fill: none }
@media (prefers-color-scheme: dark) {
.card { fill: #1c2128; stroke: #444c56 } text { fill: #e6edf3 } .dim { fill: #adbac7 }
.line { stroke: #adbac7 } .tip, .pin { fill: #adbac7 }
.plain { fill: #22272e; stroke: #8b949e } .used { fill: #545d68; stroke: #8b949e }
.probe { fill: #e69f00; stroke: #f3c65c } .chosen { fill: #56b4e9; stroke: #b5def7 }
.fresh { fill: #2fc79b; stroke: #a5e8d3 } .frozen { fill: #373e47; stroke: #8b949e }
.mark { stroke: #10151c } .a { stroke: #ff9a52 } .b { stroke: #56b4e9 } .c { stroke: #2fc79b } .d { stroke: #e3a3c8 }
}
"""


def page(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """Return a whole SVG on a card of its own, so that ink and ground always change together."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """Return one line of text."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, corner: float = 2) -> str:
    """Return a rectangle."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{corner:g}"/>'


def path(kind: str, points: Sequence[tuple[float, float]], extra: str = "") -> str:
    """Return a line through points."""
    return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" {extra}/>'


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return a straight arrow, level or upright."""
    level = y == to_y
    turn = (1 if to_x > x else -1) if level else (1 if to_y > y else -1)
    back = [(-7 * turn, -4), (-7 * turn, 4)] if level else [(-4, -7 * turn), (4, -7 * turn)]
    corners = " ".join(f"{to_x + dx:g},{to_y + dy:g}" for dx, dy in [(0, 0), *back])
    end = (to_x - 6 * turn, to_y) if level else (to_x, to_y - 6 * turn)
    return path("line", [(x, y), end]) + f'<polygon class="tip" points="{corners}"/>'


def lock(x: float, y: float) -> str:
    """Return a small closed lock: this does not move."""
    return box(x - 5, y - 2, 10, 8, "pin", 1.5) + (
        f'<path class="line" d="M{x - 3:g} {y - 2:g} v-2.5 a3 3 0 0 1 6 0 v2.5"/>'
    )


# Thirty-six coordinates: those of earlier tasks, and how far the others move in Stage 1.
USED = frozenset({2, 7, 8, 13, 19, 22, 28, 35})
CHOSEN = frozenset({4, 11, 16, 24, 31})
MOVED = {0: 0.3, 4: 1.0, 5: 0.2, 9: 0.4, 11: 0.9, 14: 0.35, 16: 0.8, 20: 0.3, 24: 0.95, 27: 0.45, 31: 0.85, 33: 0.25}


def grid(x: float, y: float, stage: str) -> list[str]:
    """Return the coordinates as they are in one stage: six by six cells."""
    parts = []
    for cell in range(36):
        left, top = x + 24 * (cell % 6), y + 24 * (cell // 6)
        chosen = cell in CHOSEN
        kind = "used" if cell in USED else "chosen" if chosen and stage in ("train", "freeze") else "plain"
        parts.append(box(left, top, 20, 20, kind))
        if stage == "probe" and cell in MOVED:
            side = 4 + 13 * MOVED[cell]
            parts.append(box(left + 10 - side / 2, top + 10 - side / 2, side, side, "probe", 1))
        if stage == "select" and chosen:
            parts.append(f'<circle class="b" stroke-width="3" cx="{left + 10:g}" cy="{top + 10:g}" r="6"/>')
        if stage == "train" and chosen:
            parts.append(path("mark", [(left + 5, top + 12), (left + 10, top + 6), (left + 15, top + 12)]))
        if cell in USED or (stage == "freeze" and chosen):
            parts.append(path("mark", [(left + 6, top + 6), (left + 14, top + 14)]))
            parts.append(path("mark", [(left + 6, top + 14), (left + 14, top + 6)]))
    return parts


def two_stages() -> str:
    """Draw one task: probe, select, train, freeze."""
    stages = [
        ("probe", "Stage 1: find", ["all free coordinates train", "under an L1 penalty,", "with throw-away rows"]),
        (
            "select",
            "Select",
            ["the largest |\u03b1 \u2212 \u03b1₀|", "over all layers together;", "then everything is put back"],
        ),
        ("train", "Stage 2: learn", ["only the chosen ones", "and the new rows train,", "without penalty"]),
        ("freeze", "Freeze", ["values stay, and the", "ledger notes them;", "no task moves them again"]),
    ]
    parts = []
    for place, (stage, title, lines) in enumerate(stages):
        x = 28 + 208 * place
        parts += [text(x + 70, 32, title, "strong"), *grid(x, 48, stage)]
        parts += [text(x + 70, 216 + 18 * i, line, "small dim") for i, line in enumerate(lines)]
        if place:
            parts.append(arrow(x - 56, 118, x - 12, 118))
    legend = [("plain", "free"), ("probe", "moved in Stage 1"), ("chosen", "this task"), ("used", "earlier tasks")]
    for place, (kind, words) in enumerate(legend):
        x = (190, 270, 430, 540)[place]
        parts += [box(x, 276, 14, 14, kind), text(x + 20, 288, words, "small", "start")]
    return page(840, 306, "One task of CLARE: probe, select, train, freeze", parts)


def budgets() -> str:
    """Draw the share of the adapter in use after T tasks for four sparsities."""
    left, top, width, height, tasks = 78, 40, 560, 250, 100

    def at(num_tasks: float, share: float) -> tuple[float, float]:
        return left + width * num_tasks / tasks, top + height * (1 - share)

    parts = [text(left, 24, "share of the adapter in use: 1 \u2212 \u03c1ᵀ", "strong", "start")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts += [path("grid", [at(0, share), at(tasks, share)])]
        parts += [text(left - 10, at(0, share)[1] + 5, f"{share:.0%}", "small dim", "end")]
    for num_tasks in (0, 20, 40, 60, 80, 100):
        parts += [text(at(num_tasks, 0)[0], top + height + 20, str(num_tasks), "small dim")]
    parts += [text(left + width / 2, top + height + 42, "tasks T", "small")]
    curves = [("a", 0.90, "none"), ("b", 0.95, "9 4"), ("c", 0.975, "3 3"), ("d", 0.99, "10 3 2 3")]
    for kind, sparsity, dash in curves:
        points = [at(num_tasks, 1 - sparsity**num_tasks) for num_tasks in range(tasks + 1)]
        parts.append(path(kind, points, f'stroke-width="2.5" stroke-dasharray="{dash}"'))
    for (kind, sparsity, dash), y in zip(curves, (42, 62, 82, 196), strict=True):
        parts.append(path(kind, [(652, y), (684, y)], f'stroke-width="2.5" stroke-dasharray="{dash}"'))
        parts.append(text(692, y + 5, f"\u03c1 = {sparsity:g}", "small", "start"))
    return page(780, 348, "Share of the adapter in use after T tasks, for four sparsities", parts)


def claims() -> str:
    """Draw the claims of five tasks on one row of coordinates; a fifth of what is free each, so that it shows."""
    num, share = 60, 0.2
    owner: dict[int, int] = {}
    parts = [text(20, 30, "Each task takes a share of what is still free", "strong", "start")]
    for task in range(5):
        free = [place for place in range(num) if place not in owner]
        budget = round(share * len(free))
        for step in range(budget):
            # A stride over the free ones stands for a choice by score.
            owner[free[(7 * task + step * len(free) // budget) % len(free)]] = task
        y = 48 + 34 * task
        parts.append(text(20, y + 15, f"task {task + 1}", "small", "start"))
        for place in range(num):
            kind = "plain" if place not in owner else "chosen" if owner[place] == task else "used"
            parts.append(box(78 + 10.4 * place, y, 8.4, 20, kind, 1.5))
        parts.append(text(712, y + 15, f"{budget} taken, {num - len(owner)} free", "small dim", "start"))
    parts += [box(78, 226, 14, 14, "chosen"), text(98, 238, "this task", "small", "start")]
    parts += [box(180, 226, 14, 14, "used"), text(200, 238, "earlier tasks, frozen", "small", "start")]
    parts += [box(360, 226, 14, 14, "plain"), text(380, 238, "free", "small", "start")]
    return page(860, 256, "Disjoint claims of five tasks on sixty coordinates, a fifth of the free ones each", parts)


def masked_update() -> str:
    """Draw why the update is masked and not the gradient."""
    rows = [
        (
            "masking the gradient",
            "decay and momentum still move",
            "what lies outside the mask",
            (9, 9, 26, 9, 9, 26, 9),
        ),
        ("masking the update", "what lies outside the mask", "is bit-identical to before", (0, 0, 26, 0, 0, 26, 0)),
    ]
    mask = (0, 0, 1, 0, 0, 1, 0)
    parts = []
    for row, (title, first, second, moves) in enumerate(rows):
        y = 64 + 130 * row
        parts += [text(24, y + 4, title, "strong", "start"), text(24, y + 28, first, "small dim", "start")]
        parts += [text(24, y + 46, second, "small dim", "start")]
        for place, (inside, move) in enumerate(zip(mask, moves, strict=True)):
            x = 290 + 66 * place
            parts += [box(x, y - 22, 44, 70, "frozen" if not inside else "plain", 4)]
            height = 46
            parts += [box(x + 6, y + 44 - height, 14, height, "used", 1)]
            kind = "chosen" if inside else ("probe" if move else "used")
            parts += [box(x + 24, y + 44 - height + move, 14, height - move, kind, 1)]
            if not inside and not move:
                parts += [lock(x + 22, y + 60)]
            elif not inside:
                parts += [text(x + 22, y + 66, "drifts", "small dim")]
            else:
                parts += [text(x + 22, y + 66, "learns", "small")]
    parts += [text(290, 26, "seven coordinates, before (left bar) and after a step (right bar)", "small dim", "start")]
    return page(780, 280, "Masking the gradient lets coordinates drift; masking the update does not", parts)


def what_moves() -> str:
    """Draw a block with its adapter and the head, and say of each part whether it moves."""
    parts = [text(150, 32, "every block of the ViT", "strong"), text(610, 32, "the classifier", "strong")]
    parts += [arrow(150, 66, 150, 90), box(70, 92, 160, 44, "frozen", 6), text(150, 119, "attention"), lock(214, 114)]
    parts += [arrow(150, 136, 150, 186), path("line", [(150, 160), (330, 160)]), arrow(330, 160, 330, 186)]
    parts += [box(70, 188, 160, 44, "frozen", 6), text(150, 215, "MLP"), lock(214, 210)]
    parts += [box(262, 188, 136, 22, "plain", 4), text(330, 204, "down, ReLU", "small")]
    parts += [box(262, 218, 136, 22, "plain", 4), text(330, 234, "up, scaled", "small")]
    parts += [
        box(268 + 24 * i, 246, 18, 8, kind, 1) for i, kind in enumerate(("used", "chosen", "used", "plain", "chosen"))
    ]
    parts += [
        text(330, 274, "adapter: a few coordinates", "small dim"),
        text(330, 291, "move, the rest is frozen", "small dim"),
    ]
    parts += [arrow(150, 232, 150, 330), path("line", [(398, 222), (430, 222), (430, 312)]), arrow(430, 312, 158, 312)]
    parts += ['<circle class="plain" cx="150" cy="312" r="9"/>', text(150, 317, "+")]
    parts += [path("line", [(150, 160), (40, 160), (40, 312)]), arrow(40, 312, 142, 312)]
    parts += [text(150, 350, "to the next block", "small dim"), text(150, 60, "from the block before", "small dim")]
    rows = [("used", "rows of task 1"), ("used", "rows of task 2"), ("used", "…"), ("fresh", "rows of this task")]
    for place, (kind, words) in enumerate(rows):
        y = 70 + 46 * place
        parts += [
            box(500, y, 220, 30, kind, 4),
            text(610, y + 20, words, "small" if kind == "used" else "small strong on-fresh"),
        ]
        if kind == "used":
            parts.append(lock(704, y + 14))
    parts += [
        text(610, 278, "one arg-max over all rows,", "small dim"),
        text(610, 296, "no task is named, no mask is used", "small dim"),
    ]
    return page(780, 372, "What a task of CLARE moves and what is frozen", parts)


FIGURES = {
    "method_two_stages.svg": two_stages,
    "method_budgets.svg": budgets,
    "method_claims.svg": claims,
    "method_masked_update.svg": masked_update,
    "method_what_moves.svg": what_moves,
}


def main() -> None:
    """Write every figure."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
