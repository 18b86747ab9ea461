"""How to install what is optional: the command for this Python, from a clone or from the index.

    install_command("search")    pip install -e '.[search]'                       in a clone
                                 pip install 'unseen-metric-learning[search]'     otherwise

The distribution has a name of its own: `unseen` on a package index may be somebody else's.
"""

import shlex
import shutil
import sys
from pathlib import Path

DISTRIBUTION = "unseen-metric-learning"


def install_command(extra: str) -> str:
    """What to type to get an extra of pyproject.toml."""
    clone = Path(__file__).parents[2]
    here = (clone / "pyproject.toml").is_file()
    place = DISTRIBUTION if not here else "." if clone == Path.cwd() else str(clone)
    return f"{_pip()} install {'-e ' * here}{_quoted(f'{place}[{extra}]')}"


def _pip() -> str:
    """`pip` where that is this Python's, otherwise in full."""
    result = shutil.which("pip")
    if result and Path(result).parent == Path(sys.executable).parent:
        return "pip"
    return f"{shlex.quote(sys.executable)} -m pip"


def _quoted(text: str) -> str:
    """Quoted even where only some shells need it."""
    return shlex.quote(text) if "'" in text else f"'{text}'"
