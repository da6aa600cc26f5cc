import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from datamodules.archives import HEADERS, past_single_folder, safe_path, unpack, unpacked
from datamodules.findings import texts
from datamodules.image_folder import ImageFolder
from tests.datamodules.pictures import save_tree


def tar_of(path: Path, *entries: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            tar.addfile(info, io.BytesIO(entry[1]))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".zip"])
def test_a_tree_comes_out_as_it_went_in(tmp_path, suffix):
    tree = save_tree(tmp_path / "top", {"train/a": 2, "train/b": 1})
    archive = tmp_path / f"pictures{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as file:
            for path in tree.rglob("*"):
                file.write(path, path.relative_to(tmp_path))
    else:
        with tarfile.open(archive, "w:gz" if suffix == ".tar.gz" else "w") as file:
            file.add(tree, arcname="top")
    folder = past_single_folder(unpacked(archive, tmp_path / "cache"))
    assert folder.name == "top"  # the one folder that holds all is stepped into
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.png")}
    assert found == {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*.png")}
    assert unpacked(archive, tmp_path / "cache") == folder.parent


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        (("../out.png", b"x"), "leads outside"),
        (("/etc/out.png", b"x"), "leads outside"),
        (("a/../../out.png", b"x"), "leads outside"),
        (("..\\out.png", b"x"), "leads outside"),
        (("C:\\out.png", b"x"), "leads outside"),
        (special("a/link.png", tarfile.SYMTYPE, "/etc/passwd"), "link or device"),
        (special("a/hard.png", tarfile.LNKTYPE, "good.png"), "link or device"),
        (special("a/null", tarfile.CHRTYPE), "link or device"),
        (special("a/pipe", tarfile.FIFOTYPE), "link or device"),
        (("good.png", b"again"), "comes twice"),
    ],
)
def test_what_an_archive_may_not_hold(tmp_path, entry, match):
    archive = tar_of(tmp_path / "bad.tar", ("good.png", b"x"), entry)
    with pytest.raises(ValueError, match=match) as caught:
        unpacked(archive, tmp_path / "cache")
    assert str(archive) in str(caught.value) or "comes twice" in str(caught.value)
    left = [p for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".tar"]
    assert left == []


def test_a_link_in_a_zip_is_refused(tmp_path):
    archive = tmp_path / "bad.zip"
    with zipfile.ZipFile(archive, "w") as file:
        entry = zipfile.ZipInfo("link.png")
        entry.external_attr = 0o120777 << 16
        file.writestr(entry, "/etc/passwd")
    with pytest.raises(ValueError, match="link or device"):
        unpacked(archive, tmp_path / "cache")


def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("datamodules.archives.ALWAYS_ALLOWED", 1000)
    archive = tmp_path / "bomb.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/zeros.png", bytes(50_000_000))
    with pytest.raises(ValueError, match="a bomb"):
        unpack(archive, tmp_path / "out")
    assert sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.png")) < 10_000_000


@pytest.mark.parametrize("name", ["broken.tar", "broken.tar.gz", "broken.zip"])
def test_a_damaged_archive_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x1f\x8b garbage that is no archive" * 50)
    with pytest.raises(ValueError, match=f"{name} cannot be unpacked") as caught:
        unpacked(tmp_path / name, tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_a_cut_archive_is_named_and_leaves_nothing(tmp_path):
    tree = save_tree(tmp_path / "top", {"a": 3, "b": 3}, size=(64, 64))
    archive = tmp_path / "cut.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(tree, arcname="top")
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(ValueError, match="cut.tar.gz cannot be unpacked"):
        unpacked(archive, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.png"))


def test_a_tar_cut_between_two_files_is_noticed(tmp_path):
    archive = tar_of(tmp_path / "cut.tar", *((f"a/{n}.png", b"x" * 512) for n in range(6)))
    archive.write_bytes(archive.read_bytes()[: 3 * 1024])
    with pytest.raises(ValueError, match="cut.tar cannot be unpacked: it was cut off"):
        unpacked(archive, tmp_path / "cache")


@pytest.mark.parametrize(
    ("local", "central", "value", "message"),
    [(6, 8, 1, "is encrypted"), (8, 10, 97, "compression method is not supported")],
)
def test_a_zip_that_cannot_be_opened_is_one_message(tmp_path, local, central, value, message):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/0.png", b"x")
    changed = bytearray(content.getvalue())
    changed[changed.find(b"PK\x03\x04") + local] = value
    changed[changed.find(b"PK\x01\x02") + central] = value
    (tmp_path / "x.zip").write_bytes(bytes(changed))
    with pytest.raises(ValueError, match=message):
        unpacked(tmp_path / "x.zip", tmp_path / "cache")


def test_ordinary_names_stay():
    assert safe_path("a/b.c/d e.png") == Path("a/b.c/d e.png")


@pytest.mark.parametrize("folders", [False, True])
@pytest.mark.parametrize("deep", [False, True])
def test_an_archive_of_very_many_entries_is_refused(tmp_path, monkeypatch, folders, deep):
    """Also where they hold nothing, or where each one makes many folders."""
    monkeypatch.setattr("datamodules.archives.ENTRIES_ALWAYS_ALLOWED", 200)
    monkeypatch.setattr("datamodules.archives.LEAST_BYTES", 1000)
    names = [("x/" * 30 if deep else "") + str(number) for number in range(7 if deep else 201)]
    entries = [special(name, tarfile.DIRTYPE) if folders else (name, b"") for name in names]
    archive = tar_of(tmp_path / "many.tar", *entries)
    with pytest.raises(ValueError, match="holds far more files than pictures of its size"):
        unpacked(archive, tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    archive = tar_of(tmp_path / "few.tar", *entries[: 200 // (31 if deep else 1)])
    assert unpacked(archive, tmp_path / "cache").is_dir()


@pytest.mark.parametrize("names", [["one.png"], ["one.csv"], ["a/one.png"], [], ["._top", "x.tar"]])
def test_an_archive_without_class_folders_is_one_message(tmp_path, names):
    archive = tar_of(tmp_path / "p.tar", *((name, b"x") for name in names))
    data = ImageFolder(str(archive), cache_dir=str(tmp_path / "cache"))
    with pytest.raises(ValueError, match="no class folders|at least two classes|cannot be read"):
        data.setup()


def test_hidden_entries_do_not_hide_the_one_folder_of_an_archive(tmp_path):
    names = ("top/a/0.png", "top/b/0.png", "._top", "__MACOSX/top/a/._0.png", ".DS_Store")
    archive = tar_of(tmp_path / "p.tar", *((name, b"x") for name in names))
    assert past_single_folder(unpacked(archive, tmp_path / "cache")).name == "top"


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_that_would_fill_the_memory_is_refused(tmp_path, kind):
    """A few kilobytes of an archive can stand for gigabytes of them."""
    info = special("header", kind)
    info.size = 2_000_000
    with tarfile.open(tmp_path / "header.tar.gz", "w:gz") as tar:
        tar.addfile(info, io.BytesIO(bytes(info.size)))
    with pytest.raises(ValueError, match="it has a header of 2,000,000 bytes"):
        unpacked(tmp_path / "header.tar.gz", tmp_path / "cache")


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_long_and_foreign_names_come_out_of_every_form_of_tar(tmp_path, form):
    name = "ü漢" + "x" * (60 if form == tarfile.USTAR_FORMAT else 150)
    with tarfile.open(tmp_path / "long.tar", "w", format=form) as tar:
        tar.addfile(tarfile.TarInfo(f"top/a/{name}.png"))
    assert (unpacked(tmp_path / "long.tar", tmp_path / "cache") / f"top/a/{name}.png").is_file()


@pytest.mark.parametrize("beside", [[], ["README.txt"], ["cover.png", "labels.csv"]])
def test_files_beside_the_one_folder_of_an_archive_do_not_hide_it(tmp_path, beside):
    tree = save_tree(tmp_path / "top", {"train/a": 20, "train/b": 20})
    with tarfile.open(tmp_path / "p.tar", "w") as tar:
        tar.add(tree, arcname="top")
        for name in beside:
            tar.addfile(tarfile.TarInfo(name))
    data = ImageFolder(str(tmp_path / "p.tar"), cache_dir=str(tmp_path / "cache"))
    assert data.class_names == ["a", "b"]
    notes = "\n".join(texts(data.findings))
    assert ("1 .txt" in notes) == ("README.txt" in beside)
    assert ("1 .csv" in notes) == ("not used: 1 picture directly in" in notes) == (len(beside) == 2)
