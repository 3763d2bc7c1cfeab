import subprocess
import sys


def test_options_are_not_imported_before_they_are_needed():
    code = "import sys; from pgherd.study.registry import studies; studies(); sys.exit('pgherd.studies.density.options' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
