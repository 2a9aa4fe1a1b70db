"""Builds the wheel and the source archive (PEP 517) with the standard library alone: the package has no
dependencies, so neither does its build, which then needs no network."""

import base64
import hashlib
import io
import pathlib
import tarfile
import tomllib
import zipfile

here = pathlib.Path(__file__).parent


def _describe():
    """Returns "<name>-<version>" as file names have it, and the text of METADATA."""
    project = tomllib.loads((here / "pyproject.toml").read_text())["project"]
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        f"License-Expression: {project['license']}",
        "Description-Content-Type: text/markdown",
    ]
    text = "\n".join(lines) + "\n\n" + (here / project["readme"]).read_text()
    return f"{project['name'].replace('-', '_')}-{project['version']}", text


def _sources():
    return sorted(p for p in (here / "penstock").iterdir() if p.suffix in (".py", ".typed"))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    stem, metadata = _describe()
    info = f"{stem}.dist-info"
    files = {f"penstock/{p.name}": p.read_bytes() for p in _sources()}
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: penstock\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    stem, metadata = _describe()
    files = {str(p.relative_to(here)): p.read_bytes() for p in _sources()}
    files |= {name: (here / name).read_bytes() for name in ("pyproject.toml", "README.md", "backend.py")}
    files["PKG-INFO"] = metadata.encode()
    with tarfile.open(pathlib.Path(sdist_directory, f"{stem}.tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{stem}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return f"{stem}.tar.gz"
