"""The calibration of a run on its page: threshold, rates, and said against true probability."""

from typing import Any

Json = dict[str, Any]

SIDE, MARGIN = 260, 34


def section(made: Json) -> str:
    """HTML with a drawing that needs no script, from what calibration.json holds."""
    return (
        f"<p>From similarity <b>{made['threshold']:.4f}</b> on, two pictures count as one class. "
        f"On {made['classes']} validation classes {_percent(made['measured_fmr'])} of the pairs of "
        f"different classes reach it (wanted: {_percent(made['fmr'])}); on other new classes at "
        f"most {_percent(made['bound'])}, with {made['confidence']:.0%} confidence, the classes "
        f"being the sample. {_percent(made['fnmr'])} of the pairs of one class stay below.</p>"
        f'<figure><figcaption class="small">Probability of the same class among the ten nearest: '
        f"said, and true on classes the fit did not see; off by {100 * made['error']:.1f} points "
        f"on average</figcaption>{_drawing(made['reliability'])}</figure>"
    )


def _drawing(bins: list[Json]) -> str:
    def x(value: float) -> float:
        return round(MARGIN + value * SIDE, 1)

    def y(value: float) -> float:
        return round(MARGIN / 2 + (1 - value) * SIDE, 1)

    line = " ".join(f"{x(b['said'])},{y(b['true'])}" for b in bins)
    dots = "".join(
        f'<circle cx="{x(b["said"])}" cy="{y(b["true"])}" r="4" fill="var(--accent)"><title>said '
        f"{b['said']:.2f}, true {b['true']:.2f}, {b['count']} pictures</title></circle>"
        for b in bins
    )
    marks = "".join(
        f'<text x="{x(v)}" y="{y(0) + 16}" text-anchor="middle">{v:g}</text>'
        f'<text x="{x(0) - 6}" y="{y(v) + 4}" text-anchor="end">{v:g}</text>'
        for v in (0, 0.5, 1)
    )
    width, height = SIDE + 2 * MARGIN, SIDE + 2 * MARGIN
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        'aria-label="Reliability curve" font-size="12" fill="var(--muted)">'
        f'<rect x="{x(0)}" y="{y(1)}" width="{SIDE}" height="{SIDE}" fill="none" '
        'stroke="var(--line)"/>'
        f'<line x1="{x(0)}" y1="{y(0)}" x2="{x(1)}" y2="{y(1)}" stroke="var(--muted)" '
        'stroke-dasharray="4 4"/>'
        f'<polyline points="{line}" fill="none" stroke="var(--accent)" stroke-width="2"/>'
        f"{dots}{marks}"
        f'<text x="{x(0.5)}" y="{y(0) + 32}" text-anchor="middle">said</text>'
        f'<text x="12" y="{y(0.5)}" text-anchor="middle" transform="rotate(-90 12 {y(0.5)})">true'
        "</text></svg>"
    )


def _percent(value: float) -> str:
    return f"{100 * value:.3g}&nbsp;%"
