"""The rules of the house: doors between rooms, one word, size, no machine paths."""

import re
from pathlib import Path

import pytest

from pyvllm_pp import _core, batch, errors, feedback, plan, tables
from tests.python.house import (
    ROOT,
    code,
    imports,
    includes,
    longest_function,
    name,
    tracked,
)

# A room, and the rooms that it may know.
DOORS = {
    "error": set(),
    "batch": {"error"},
    "plan": {"error", "batch"},
    "tables": {"error", "batch", "plan"},
    "feedback": {"error", "batch"},
}
ROOM_OF_SOURCE = {
    "arena_ring": "tables",
    "selected": "tables",
    "balancer": "plan",
    "feedback_requests": "feedback",
    "index_run": "tables",
    "local_tokens": "tables",
    "partition": "plan",
    "partition_balanced": "plan",
    "partition_dual_chunk_swap": "plan",
}
HEAVY = {"vllm", "torch", "triton"}
FACES = [batch, errors, feedback, plan, tables]
MOST_LINES, MOST_FUNCTION_LINES = 400, 60


def rooms_included(path: Path) -> set[str]:
    found = {Path(i).stem for i in includes(path) if i.startswith("pyvllm_pp/")}
    inner = {Path(i).stem for i in includes(path) if "/" not in i and i.endswith(".h")}
    return found | {ROOM_OF_SOURCE[stem] for stem in inner if stem in ROOM_OF_SOURCE}


def test_a_core_room_includes_only_rooms_before_it() -> None:
    for path in code("cpp/include", "cpp/src"):
        room = ROOM_OF_SOURCE.get(path.stem, path.stem)
        assert room in DOORS, f"{name(path)} belongs to no room"
        assert rooms_included(path) <= DOORS[room] | {room}, name(path)


def test_every_room_has_a_header_and_a_sibling_test() -> None:
    headers = {path.stem for path in code("cpp/include")}
    assert headers == set(DOORS)
    tests = {path.stem for path in code("tests/cpp")}
    assert {f"{stem}_test" for stem in headers} <= tests


def test_kernels_know_no_room() -> None:
    for path in code("cpp/kernels"):
        assert rooms_included(path) <= {"error"}, name(path)


def test_pybind11_stays_in_the_bindings() -> None:
    others = code("cpp/include", "cpp/src", "cpp/kernels", "cpp/fuzz", "tests/cpp")
    for path in others:
        assert not [i for i in includes(path) if i.startswith("pybind11")], name(path)
        assert "Python.h" not in includes(path), name(path)


def test_a_face_imports_only_faces_before_it() -> None:
    faces = {"errors": set(), "batch": set()} | {
        "plan": {"batch"},
        "tables": {"batch", "plan"},
        "feedback": {"batch"},
    }
    for face, allowed in faces.items():
        path = ROOT / "pyvllm_pp" / f"{face}.py"
        known = {
            parts[1]
            for found in imports(path)
            if (parts := found.module.split("."))[0] == "pyvllm_pp" and len(parts) > 1
        }
        assert known <= allowed | {"_core"}, f"{face} imports {known}"


def test_only_the_host_imports_vllm_and_torch() -> None:
    for path in code("pyvllm_pp"):
        if path.suffix == ".pyi" or name(path).startswith("pyvllm_pp/host/"):
            continue
        is_cli = name(path).startswith("pyvllm_pp/cli/")
        for found in imports(path):
            if found.module.partition(".")[0] in HEAVY:
                lazily = {"function", "types"} if is_cli else set()
                assert found.where in lazily, f"{name(path)} imports {found.module}"


def test_nobody_imports_the_host_when_loaded() -> None:
    for path in code("pyvllm_pp"):
        if path.suffix == ".pyi" or name(path).startswith("pyvllm_pp/host/"):
            continue
        for found in imports(path):
            if found.module.startswith("pyvllm_pp.host"):
                assert found.where in {"function", "types"}, name(path)


def test_the_core_does_not_know_its_reference() -> None:
    for path in code("pyvllm_pp"):
        if not name(path).startswith(("pyvllm_pp/reference/", "pyvllm_pp/cli/")):
            found = {i.module for i in imports(path)} if path.suffix == ".py" else set()
            assert not [m for m in found if "reference" in m], name(path)


def names_in_bindings() -> set[str]:
    """What the core's bindings call by name, arguments left out."""
    text = "".join(path.read_text() for path in tracked(":(glob)cpp/bindings/*.cpp"))
    text = re.sub(r"py::arg\(\s*\"\w+\"\)", "", text)
    calls = r"(?:\.value|\bdef|def_property_readonly|class_<\w+>|native_enum<\w+>)"
    return set(re.findall(calls + r"\((?:\s*module,)?\s*\"(\w+)\"", text))


def test_a_name_is_the_same_in_core_binding_stub_and_faces() -> None:
    headers = "".join(path.read_text() for path in code("cpp/include"))
    stub = (ROOT / "pyvllm_pp" / "_core.pyi").read_text()
    names = names_in_bindings()
    assert len(names) > 30
    for word in names:
        assert re.search(rf"\b{word}\b", headers), f"{word} is not in a header"
        assert re.search(rf"\b{word}\b", stub), f"{word} is not in the stub"


def test_every_public_name_of_the_core_has_a_face() -> None:
    public = {word for word in vars(_core) if not word.startswith("_")}
    shown = {word for face in FACES for word in vars(face)}
    assert public <= shown


def test_tables_have_the_fields_of_the_core() -> None:
    header = (ROOT / "cpp/include/pyvllm_pp/tables.h").read_text()
    for face, struct in [
        (tables.DeviceTables, "DeviceTables"),
        (tables.HostTables, "HostTables"),
        (tables.DeviceSizes, "DeviceTables"),
    ]:
        body = re.search(rf"struct {struct} \{{(.*?)^\}};", header, re.S | re.M)
        assert body is not None
        fields = re.findall(r"std::span<[\w:]+> (\w+);", body[1])
        assert tuple(fields) == face._fields


@pytest.mark.parametrize("path", code(), ids=name)
def test_files_and_functions_are_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES
    if path.suffix != ".cmake":
        assert longest_function(path) <= MOST_FUNCTION_LINES


def test_no_file_names_a_path_of_a_machine() -> None:
    folders = "|".join(["work", "root", "home", "mnt", "Users"])
    pattern = re.compile(rf"(?<![\w.$}}~/-])/(?:{folders})/[\w.-]+")
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # a picture
        assert not pattern.findall(text), name(path)
