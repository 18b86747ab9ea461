"""torchvision and timm import in a fresh interpreter beside whatever torch is installed."""

import subprocess
import sys


def test_torchvision_and_timm_import_in_a_fresh_interpreter() -> None:
    program = (
        "import unseen.core.torchvision_operators, torchvision, timm\n"
        "from torchvision.transforms import v2\n"
        "print(timm.create_model('resnet18').num_classes)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1000"
