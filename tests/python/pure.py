# SPDX-License-Identifier: Apache-2.0
"""Tests of the package plait without torch; pure.sh starts them."""
import ctypes
import itertools
import json
import mmap
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = sys.argv[1:]
sys.path.insert(0, os.path.join(SOURCE, "tests", "python"))
import tap  # noqa: E402

import plait  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None

GOOD = {
    "PLAIT_RANK": "5", "PLAIT_WORLD_SIZE": "16", "PLAIT_LOCAL_RANK": "1",
    "PLAIT_LOCAL_WORLD_SIZE": "4", "PLAIT_NODE_RANK": "1", "PLAIT_NNODES": "4",
    "PLAIT_TP_SIZE": "2", "PLAIT_CP_SIZE": "2", "PLAIT_EP_SIZE": "2",
    "PLAIT_DP_SIZE": "2", "PLAIT_PP_SIZE": "2", "PLAIT_TP_RANK": "1",
    "PLAIT_CP_RANK": "0", "PLAIT_EP_RANK": "0", "PLAIT_DP_RANK": "1",
    "PLAIT_PP_RANK": "0", "PLAIT_ORDER": "tp-cp-ep-dp-pp", "PLAIT_GPU": "-1",
    "PLAIT_JOBID": "7.0", "PLAIT_NICS": "mlx5_0,mlx5_1",
    "MASTER_ADDR": "node1", "MASTER_PORT": "61003"}
WRONG = [  # changes of GOOD, and words of the message
    ({"PLAIT_RANK": "16"}, "a rank must be less than its size"),
    ({"PLAIT_RANK": "-1"}, "PLAIT_RANK=-1 must be a whole number"),
    ({"PLAIT_RANK": ""}, "PLAIT_RANK= must be a whole number"),
    ({"PLAIT_RANK": "4"}, "PLAIT_RANK=4"),
    ({"PLAIT_RANK": "5 "}, "must be a whole number"),
    ({"PLAIT_WORLD_SIZE": None}, "PLAIT_WORLD_SIZE is not set"),
    ({"PLAIT_WORLD_SIZE": "8"}, "not make 8 tasks"),
    ({"PLAIT_TP_SIZE": "0"}, "PLAIT_TP_SIZE=0 must be a whole number >= 1"),
    ({"PLAIT_TP_SIZE": "99999999999"}, "must be a whole number"),
    ({"PLAIT_RANK": "9" * 5000}, "must be a whole number"),
    ({"PLAIT_DP_SIZE": "1048576", "PLAIT_WORLD_SIZE": "8388608"},
     "8388608 tasks; there can be up to 1048576"),
    ({"PLAIT_EP_SIZE": "3"}, "is not divisible by"),
    ({"PLAIT_TP_RANK": "0"}, "tp coordinate 1 in this layout"),
    ({"PLAIT_EP_RANK": "1"}, "ep coordinate 0 in this layout"),
    ({"PLAIT_ORDER": "tp-cp-dp-pp"}, "each of tp, cp, ep, dp and pp once"),
    ({"PLAIT_ORDER": None}, "each of tp, cp, ep, dp and pp once"),
    ({"PLAIT_ORDER": "cp-tp-ep-dp-pp"}, "must be neighbours"),
    ({"PLAIT_LOCAL_RANK": "4"}, "a rank must be less than its size"),
    ({"PLAIT_NODE_RANK": "3", "PLAIT_LOCAL_RANK": "3"}, "does not go with"),
    ({"MASTER_PORT": None}, "MASTER_PORT is not set"),
    ({"MASTER_PORT": "65536"}, "must be from 1 to 65535"),
    ({"MASTER_PORT": "0"}, "must be a whole number >= 1"),
    ({"PLAIT_SECRET": "abc"}, "PLAIT_SECRET must be"),
    ({"PLAIT_NICS": "n" * 300}, "PLAIT_NICS is longer"),
]
UNPLANNED = [  # environments without PLAIT_RANK; words, or None: no plan
    ({}, None),
    ({"SLURM_PLAIT_PLAN": "none", "SLURM_STEP_ID": "0"}, None),
    ({"SLURM_PLAIT_FLAGS": "tp"}, None),
    ({"SLURM_PLAIT_PLAN": "1:x"}, "this node lacks Slurm's plait plugin"),
    ({"SLURM_PLAIT_FLAGS": "tp,pp", "SLURM_STEP_ID": "0"},
     "submitted with the flags tp,pp"),
]


def changed(change):
    env = {**GOOD, **change}
    return {k: v for k, v in env.items() if v is not None}


def judged(env):
    """The contract or None, and the message."""
    try:
        return plait.contract(env), None
    except plait.Error as why:
        return None, str(why)


class Library:
    """What libplait says of the same."""

    def __init__(self):
        self.so = ctypes.CDLL(os.path.join(BUILD, ".libs", "libplait.so"))
        self.so.plait_launch_create.restype = ctypes.c_void_p
        self.so.plait_launch_destroy.argtypes = [ctypes.c_void_p]
        self.so.plait_launch_coordinate.argtypes = [ctypes.c_void_p,
                                                    ctypes.c_int]
        self.so.plait_layout_create.restype = ctypes.c_void_p
        self.so.plait_layout_destroy.argtypes = [ctypes.c_void_p]
        self.so.plait_layout_members.argtypes = [
            ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
            ctypes.c_int]

    def judge(self, env):
        """Coordinates, or None, and the message."""
        os.environ.clear()
        os.environ.update(env)
        err = ctypes.create_string_buffer(512)
        launch = self.so.plait_launch_create(err)
        if not launch:
            return None, err.value.decode()
        found = {a: self.so.plait_launch_coordinate(launch, i)
                 for i, a in enumerate(("tp", "cp", "ep", "dp", "pp"))}
        self.so.plait_launch_destroy(launch)
        return found, None

    def groups(self, sizes, order, world):
        """{group: [members of the group of each rank]}, or None: refused."""
        names = ("tp", "cp", "ep", "dp", "pp", "dp-cp", "expert-dp", "tp-pp")
        size = (ctypes.c_int * 5)(*(sizes[a] for a in names[:5]))
        err = ctypes.create_string_buffer(512)
        layout = self.so.plait_layout_create(size, order.encode(), world, err)
        if not layout:
            return None
        found, buffer = {}, (ctypes.c_int * world)()
        for i, name in enumerate(names):
            found[name] = []
            for rank in range(world):
                n = self.so.plait_layout_members(layout, i, rank, buffer,
                                                 world)
                found[name].append(list(buffer[:n]))
        self.so.plait_layout_destroy(layout)
        return found


def library():
    path = os.path.join(BUILD, ".libs", "libplait.so")
    if not os.path.exists(path):
        raise unittest.SkipTest("no shared library was built")
    try:
        return Library()
    except OSError as why:  # a sanitizer's library must be loaded first
        raise unittest.SkipTest(f"libplait cannot be loaded: {why}")


class Contracts(unittest.TestCase):
    def setUp(self):
        self.environ = dict(os.environ)

    def tearDown(self):
        os.environ.clear()
        os.environ.update(self.environ)

    def test_good(self):
        """The contract of a task is read whole"""
        c = plait.contract(GOOD)
        self.assertEqual((c.rank, c.world_size, c.local_rank, c.node_rank),
                         (5, 16, 1, 1))
        self.assertEqual(c.coordinates,
                         {"tp": 1, "cp": 0, "ep": 0, "dp": 1, "pp": 0})
        self.assertEqual(c.nics, ["mlx5_0", "mlx5_1"])
        self.assertEqual((c.master_addr, c.master_port), ("node1", 61003))
        self.assertEqual(c.group("tp"), [4, 5])
        self.assertEqual(c.group("dp-cp"), [1, 3, 5, 7])

    def test_wrong(self):
        """Wrong contracts are refused, each with what is wrong"""
        for change, words in WRONG:
            with self.subTest(change):
                found, text = judged(changed(change))
                self.assertIsNone(found)
                self.assertIn(words, text)
                self.assertNotIn("\n", text)

    def test_unplanned(self):
        """A step that was to be planned and was not is refused"""
        for env, words in UNPLANNED:
            with self.subTest(env):
                found, text = judged(env)
                self.assertIsNone(found)
                self.assertTrue(text is None if words is None
                                else words in text, text)

    def test_as_library(self):
        """libplait takes and refuses the same contracts, drawn at random"""
        so = library()
        draw = random.Random(11)
        values = ["", "0", "1", "2", "3", "4", "8", "16", "-1", "+1", " 1",
                  "1x", "65536", "9" * 5000, "0" * 5000 + "1", "99999999999", "pp-dp-ep-cp-tp",
                  "tp-cp-ep-pp-dp", "none", "a" * 40, None]
        trials = [changed(c) for c, _ in WRONG] + [GOOD]
        for _ in range(3000):
            names = draw.sample(sorted(GOOD) + ["PLAIT_SECRET"],
                                draw.randint(1, 3))
            trials.append(changed({n: draw.choice(values) for n in names}))
        # Whole plans, with one number changed or none.
        for _ in range(300):
            sizes = {a: draw.choice([1, 2, 3]) for a in ("tp", "cp", "dp",
                                                         "pp")}
            sizes["ep"] = draw.choice([1, 2])
            order = draw.sample(["tp", "cp", "ep", "dp", "pp"], 5)
            env = self.plan(draw, sizes, "-".join(order))
            if draw.random() < 0.5:
                env[draw.choice(sorted(env))] = draw.choice("0123")
            trials.append(env)
        taken = 0
        for env in trials:
            if "PLAIT_RANK" not in env:
                continue
            theirs, why = so.judge(env)
            ours, text = judged(env)
            taken += theirs is not None
            self.assertEqual(theirs is None, ours is None, (env, why, text))
            if ours:
                self.assertEqual(theirs, ours.coordinates)
        self.assertGreater(taken, 100)

    @staticmethod
    def plan(draw, sizes, order):
        try:
            layout = plait.Layout(sizes, order)
        except plait.Error:
            layout = plait.Layout({**sizes, "ep": 1}, order)
        rank = draw.randrange(layout.world)
        env = {"PLAIT_RANK": rank, "PLAIT_WORLD_SIZE": layout.world,
               "PLAIT_LOCAL_RANK": 0, "PLAIT_LOCAL_WORLD_SIZE": 1,
               "PLAIT_NODE_RANK": rank, "PLAIT_NNODES": layout.world,
               "PLAIT_GPU": -1, "PLAIT_ORDER": order}
        for axis, at in layout.coordinates(rank).items():
            env[f"PLAIT_{axis.upper()}_SIZE"] = sizes[axis]
            env[f"PLAIT_{axis.upper()}_RANK"] = at
        return {k: str(v) for k, v in env.items()}

    def test_outside(self):
        """Without the contract init, mesh and groups say what to start"""
        for name in GOOD:
            os.environ.pop(name, None)
        for call in (plait.init, plait.mesh, lambda: plait.groups("tp"),
                     lambda: plait.group("tp")):
            with self.assertRaisesRegex(
                    plait.Error, r'not started under a plan.*srun --dp=auto'):
                call()
        self.assertNotIn("torch", sys.modules)

    def test_no_torch(self):
        """init without torch says so"""
        os.environ.update(GOOD)
        sys.modules["torch"] = None
        try:
            with self.assertRaisesRegex(plait.Error, "needs torch: pip"):
                plait.init()
        finally:
            del sys.modules["torch"]
        self.assertEqual(plait.groups("pp")[0], [0, 8])
        with self.assertRaisesRegex(plait.Error, 'no group is called "xp"'):
            plait.groups("xp")


class Layouts(unittest.TestCase):
    def test_groups(self):
        """Groups are libplait's, in 300 layouts and orders drawn at random"""
        so = library()
        draw = random.Random(5)
        taken = 0
        for _ in range(300):
            sizes = {a: draw.choice([1, 1, 2, 3, 4])
                     for a in ("tp", "cp", "ep", "dp", "pp")}
            order = "-".join(draw.sample(["tp", "cp", "ep", "dp", "pp"], 5))
            world = (sizes["tp"] * sizes["cp"] * sizes["dp"] * sizes["pp"])
            theirs = so.groups(sizes, order, world)
            try:
                layout = plait.Layout(sizes, order)
            except plait.Error:
                self.assertIsNone(theirs, (sizes, order))
                continue
            self.assertIsNotNone(theirs, (sizes, order))
            taken += 1
            for name, of_rank in theirs.items():
                ours = layout.groups(name)
                self.assertEqual(sorted(sum(ours, [])), list(range(world)))
                for rank, members in enumerate(of_rank):
                    self.assertEqual(
                        next(g for g in ours if rank in g), members,
                        (sizes, order, name))
        self.assertGreater(taken, 100)

    def test_mesh(self):
        """Along each axis of a mesh are the plan's groups, in all orders"""
        for order in itertools.permutations(("tp", "cp", "ep", "dp", "pp")):
            for ep in (1, 2):
                try:
                    layout = plait.Layout({"tp": 2, "cp": 2, "dp": 3, "pp": 2,
                                           "ep": ep}, "-".join(order))
                except plait.Error:
                    continue
                self.check_mesh(layout, False)
                self.check_mesh(layout, True)

    def check_mesh(self, layout, experts):
        names, sizes, ranks = layout.mesh(experts)
        self.assertEqual(sorted(ranks), list(range(layout.world)))
        stride = layout.world
        for name, size in zip(names, sizes):
            stride //= size
            lines = []
            for at in range(layout.world):
                if at // stride % size == 0:
                    lines.append([ranks[at + k * stride]
                                  for k in range(size)])
            self.assertEqual(sorted(lines), sorted(layout.groups(
                name.replace("_", "-"))), (name, layout.order, experts))


class Commands(unittest.TestCase):
    model = os.path.join(SOURCE, "examples", "llama3-8b.yaml")

    def command(self, *words):
        return json.loads(subprocess.run(
            [os.path.join(BUILD, "plait"), *words], check=True,
            stdout=subprocess.PIPE).stdout)

    def test_estimate(self):
        """estimate() is what plait estimate --json says"""
        ours = plait.estimate(self.model, gpus=64, gpu_type="h100", tp=2,
                              dp="auto", micro_batch=2,
                              set={"train.global_batch": 256})
        theirs = self.command(
            "estimate", "--model", self.model, "--gpus", "64", "--gpu-type",
            "h100", "--tp", "2", "--dp", "auto", "--micro-batch", "2", "--set",
            "train.global_batch=256", "--json")
        self.assertEqual(ours, theirs)
        self.assertEqual(ours["parameters"], 8030261248)

    def test_plan(self):
        """plan() is what plait plan --json says, and its groups are ours"""
        ours = plait.plan(tp=2, pp=2, nodes="n[1-4]", tasks_per_node=4,
                          rank_order="tp-cp-ep-pp-dp")
        theirs = self.command(
            "plan", "--tp", "2", "--pp", "2", "--nodes", "n[1-4]",
            "--tasks-per-node", "4", "--rank-order", "tp-cp-ep-pp-dp",
            "--json")
        self.assertEqual(ours, theirs)
        layout = plait.Layout(ours, ours["order"])
        for axis, groups in ours["groups"].items():
            self.assertEqual(sorted(layout.groups(axis)), sorted(groups))
        self.assertTrue(plait.plan(auto=True, model=self.model, gpus=64,
                                   gpu_type="h100"))

    def test_refused(self):
        """What the command refuses is an Error of one line"""
        for call, words in (
                (lambda: plait.plan(tp=3, nodes="n1", tasks_per_node=4),
                 "not divisible by --tp=3"),
                (lambda: plait.plan(tpp=3), "tpp"),
                (lambda: plait.estimate("/nowhere.yaml"), "/nowhere.yaml"),
                (lambda: plait.estimate(self.model, zero=7), "zero")):
            with self.assertRaises(plait.Error) as why:
                call()
            self.assertIn(words, str(why.exception))
            self.assertNotIn("\n", str(why.exception))

    def test_warned(self):
        """A warning before the reason is not the reason"""
        own = os.environ["PLAIT_COMMAND"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plait")
            with open(path, "w") as f:
                f.write("#!/bin/sh\necho 'plait: warning: slow' >&2\n"
                        "echo 'plait: wrong' >&2\nexit 1\n")
            os.chmod(path, 0o755)
            os.environ["PLAIT_COMMAND"] = path
            try:
                with self.assertRaisesRegex(plait.Error, "^plait plan: wrong$"):
                    plait.plan()
            finally:
                os.environ["PLAIT_COMMAND"] = own

    def test_missing_node(self):
        """A node in no switch is a warning, and the plan is made"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "fabric")
            with open(path, "w") as f:
                f.write("SwitchName=a Nodes=n[1,4]\n"
                        "SwitchName=b Nodes=n2\nSwitchName=c Switches=a,b\n")
            with self.assertWarnsRegex(
                    UserWarning, "^no switch of the fabric has node n3; "
                    "the nodes stay in Slurm's order$") as seen:
                found = plait.plan(pp=2, nodes="n[1,2,4,3]", tasks_per_node=1,
                                   fabric=path)
            self.assertEqual(seen.filename, __file__)
            self.assertEqual(["n1", "n2", "n4", "n3"],
                             [r["node"] for r in found["ranks"]])
            self.assertEqual([0, 1, 2, 3], [r["rank"] for r in found["ranks"]])

    def test_no_command(self):
        """Without the command, the Error says what to install"""
        path, own = os.environ["PATH"], os.environ.pop("PLAIT_COMMAND")
        os.environ["PATH"] = "/nowhere"
        try:
            with self.assertRaisesRegex(plait.Error, "install plait-tools"):
                plait.plan()
            os.environ["PLAIT_COMMAND"] = "/nowhere/plait"
            with self.assertRaisesRegex(plait.Error, "cannot start"):
                plait.plan()
            os.environ["PLAIT_COMMAND"] = "/bin/echo"
            with self.assertRaisesRegex(plait.Error, "no JSON document"):
                plait.plan()
        finally:
            os.environ.update({"PATH": path, "PLAIT_COMMAND": own})


LAYOUTS = {  # how a small model is trained, and the sizes of plait run
    "tensor and pipeline": (4, ["--tp=2", "--pp=2"], []),
    "ZeRO 3 in odd shares": (3, ["--dp=3"], ["--set", "parallel.zero=3"]),
    "tensor parallel with ZeRO 1": (4, ["--tp=2"], ["--set", "parallel.zero=1"]),
}


def read_whole(path):
    """{tensor: (shape, bytes)} of a file that has every tensor whole."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        head = json.loads(file.read(size))
        data = file.read()
    places = json.loads(head.pop("__metadata__")["plait"])
    found = {}
    for name, entry in head.items():
        place = places[name]
        rows, columns = place["shape"]  # the box may have more rows: padding
        assert place["begin"] == [0, 0] and place["box"][1] == columns
        assert place["run"] == [0, place["box"][0] * columns]
        low = entry["data_offsets"][0]
        found[name] = ((rows, columns) if rows > 1 else (columns,),
                       data[low:low + 4 * rows * columns])
    return found


def train(folder, name, more, np=1, flags=()):
    """A run of plait-train, which writes checkpoints to folder/name."""
    words = [os.path.join(BUILD, "plait-train"),
             os.path.join(folder, "c.yaml"), "--device", "cpu"]
    for text in ("train.steps=4", "checkpoint.every=2", "checkpoint.keep=0",
                 "checkpoint.dir=" + os.path.join(folder, name),
                 "log.metrics=" + os.path.join(folder, name + ".jsonl")):
        words += ["--set", text]
    words += more
    if np > 1:
        words = [os.path.join(BUILD, "plait"), "run", "--np", str(np), *flags,
                 "--", *words]
    done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=240, check=False)
    assert done.returncode == 0, done.stdout.decode()


def write_file(path, shapes, place=None):
    """A rank's file with tensors of these shapes, of ones."""
    head, at = {}, 0
    for name, shape in shapes.items():
        size = 4
        for n in shape:
            size *= n
        head[name] = {"dtype": "F32", "shape": shape,
                      "data_offsets": [at, at + size]}
        at += size
    if place:
        head["__metadata__"] = {"plait": json.dumps(place)}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text +
                struct.pack("<f", 1) * (at // 4))


def write_manifest(path, names):
    """A manifest of an earlier version, which has no checksum."""
    files = []
    for name in names:
        at = os.path.join(path, name)
        there = name.isprintable() and os.path.exists(at)
        files.append({"name": name, "crc32": "0" * 8,
                      "bytes": os.path.getsize(at) if there else 0})
    with open(os.path.join(path, "manifest.json"), "w") as f:
        json.dump({"format": "plait", "version": 1, "step": 1,
                   "files": files}, f)


@unittest.skipUnless(numpy, "no python3-numpy")
class Checkpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = os.path.realpath(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        subprocess.run([sys.executable, "-B", os.path.join(
            SOURCE, "tests", "lib", "small_model.py"), cls.folder, "llama"],
            check=True)
        train(cls.folder, "one", [])
        for name, (np, flags, more) in LAYOUTS.items():
            train(cls.folder, name, more, np, flags)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def test_layouts(self):
        """A checkpoint of each of three layouts has the bits that plait-train
        reads from it"""
        for name in LAYOUTS:
            # One process reads it and, at a rate of 0, writes it as it is.
            train(self.folder, "again", [
                "--resume", self.path(name, "step-00000002"),
                "--resume-anyway", "optim.lr", "--set", "optim.lr=0"])
            theirs = read_whole(self.path("again", "step-00000004",
                                          "rank-00000.safetensors"))
            ours = plait.checkpoint.load(self.path(name, "step-00000002"))
            self.assertEqual(ours.step, 2)
            self.assertEqual(
                set(ours), {n for n in theirs if not n.startswith("optim.")})
            for tensor, values in ours.items():
                shape, data = theirs[tensor]
                self.assertEqual((values.shape, values.dtype),
                                 (shape, numpy.float32))
                self.assertEqual(values.tobytes(), data, tensor)
            shutil.rmtree(self.path("again"))

    def test_state(self):
        """The optimizer's state in each layout is that of one process, to
        rounding"""
        one = plait.checkpoint.load(self.path("one"), state=True)
        self.assertGreater(sum(n.startswith("optim.") for n in one), 10)
        for name in LAYOUTS:
            ours = plait.checkpoint.load(self.path(name), state=True)
            self.assertEqual(set(ours), set(one))
            for tensor, values in ours.items():
                self.assertEqual(values.shape, one[tensor].shape)
                error = numpy.abs(values - one[tensor]).max()
                self.assertLessEqual(error,
                                     1e-4 * numpy.abs(one[tensor]).max() +
                                     1e-7, (name, tensor))

    def test_mapped(self):
        """A tensor that is whole in one file is mapped; writing leaves the
        file as it is"""
        file = self.path("one", "step-00000004", "rank-00000.safetensors")
        with open(file, "rb") as f:
            before = f.read()
        for values in plait.checkpoint.load(self.path("one")).values():
            owner = values
            while isinstance(owner.base, numpy.ndarray):
                owner = owner.base
            self.assertIsInstance(getattr(owner.base, "obj", owner.base),
                                  mmap.mmap)
            self.assertTrue(values.flags.writeable)
            values[...] = 0
        with open(file, "rb") as f:
            self.assertEqual(f.read(), before)

    def test_names(self):
        """Tensors can be picked by name, the state's too"""
        every = sorted(plait.checkpoint.load(self.path("one"), state=True))
        names = [every[0], next(n for n in every if n.startswith("optim."))]
        found = plait.checkpoint.load(self.path("tensor and pipeline"),
                                      names=names)
        self.assertEqual(list(found), names)
        with self.assertRaisesRegex(plait.Error, "no tensor nothing"):
            plait.checkpoint.load(self.path("one"), names=["nothing"])

    def copy(self, name="tensor and pipeline"):
        path = self.path("copy")
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.path(name, "step-00000004"), path)
        return path

    def refused(self, path, words, **options):
        with self.assertRaises(plait.Error) as why:
            plait.checkpoint.load(path, **options)
        self.assertIn(words, str(why.exception))
        self.assertNotIn("\n", str(why.exception))

    def test_damaged(self):
        """Damaged checkpoints are refused, with the file's name"""
        self.refused(self.path("nowhere"), "no such folder")
        self.refused(self.folder, "no complete checkpoint")
        path = self.copy()
        shard = os.path.join(path, "rank-00001.safetensors")
        with open(shard, "r+b") as f:
            f.truncate(os.path.getsize(shard) - 4)
        self.refused(path, "rank-00001.safetensors: truncated or changed")
        os.unlink(shard)
        self.refused(path, "rank-00001.safetensors: No such file")
        path = self.copy()
        with open(shard, "r+b") as f:
            f.seek(-1, 2)
            last = f.read(1)
            f.seek(-1, 2)
            f.write(bytes([last[0] ^ 1]))
        self.refused(path, "do not match the manifest's checksum", verify=True)
        plait.checkpoint.load(path)
        path = self.copy()
        with open(os.path.join(path, "manifest.json"), "r+b") as f:
            text = f.read()
            f.seek(0)
            f.write(text.replace(b'"step": 4', b'"step": 5'))
        self.refused(path, "edited or corrupt")
        os.unlink(os.path.join(path, "manifest.json"))
        self.refused(path, "no complete checkpoint")

    def test_latest(self):
        """The checkpoint is the one that plait-train goes on from, and a
        link that changes later does not lead elsewhere"""
        folder = self.path("saved")
        shutil.copytree(self.path("one"), folder, symlinks=True)
        latest = os.path.join(folder, "latest")
        steps = [os.path.join(folder, f"step-0000000{n}") for n in (2, 4)]
        self.assertTrue(os.path.islink(latest))
        for path in (folder, latest):
            self.assertEqual(plait.checkpoint.load(path).path, steps[1])
        for target, step in (("step-00000002", 0), ("step-00000003", 0),
                             ("step-00000009", 1)):
            os.unlink(latest)
            os.symlink(target, latest)
            self.assertEqual(plait.checkpoint.load(folder).path, steps[step])
        for target in ("elsewhere", "step-00000001"):
            os.unlink(latest)
            os.symlink(target, latest)
            self.refused(folder, "not a link to a checkpoint" if
                         target == "elsewhere" else "no complete checkpoint")
        os.unlink(latest)
        self.assertEqual(plait.checkpoint.load(folder).path, steps[1])
        shutil.copytree(steps[0], latest)
        self.refused(folder, "latest: not a link to a checkpoint")

    def test_many(self):
        """2,000 files are read with 256 descriptors"""
        path = self.path("many")
        os.mkdir(path)
        names = [f"rank-{n:05}.safetensors" for n in range(2000)]
        for n, name in enumerate(names):
            write_file(os.path.join(path, name), {f"t.{n}": [3, 2],
                                                  "all": [1, 2]},
                       {"all": {"shape": [2000, 2], "begin": [n, 0],
                                "box": [1, 2], "run": [0, 2]}})
        write_manifest(path, names)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        try:
            found = plait.checkpoint.load(path)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        self.assertEqual(len(found), 2001)
        for name, values in found.items():
            self.assertEqual(values.shape,
                             (2000, 2) if name == "all" else (3, 2))
            self.assertTrue((values == 1).all() and values.flags.writeable)

    def test_strange(self):
        """Files of strange kinds, names and shapes are refused"""
        path = self.path("strange")
        os.mkdir(path)
        file = os.path.join(path, "a")
        manifest = os.path.join(path, "manifest.json")
        write_file(file, {"t": [2]})
        write_manifest(path, ["a", "a"])
        self.refused(path, "it names a file twice")
        for name in ("a\0b", "a\ud800", "a\nb"):
            write_manifest(path, [name])
            self.refused(path, "not the manifest of a plait checkpoint")
        for shape, stored in (([0, 5], [0, 5]), ([5, 0], [2])):
            write_file(file, {"t": stored},
                       {"t": {"shape": shape, "begin": [0, 0], "box": [1, 5],
                              "run": [0, stored[0]]}})
            write_manifest(path, ["a"])
            self.refused(path, "the shape or offset of tensor t")
        os.unlink(file)
        os.mkfifo(file)
        write_manifest(path, ["a"])
        self.refused(path, "a: not a regular file")
        os.unlink(manifest)
        os.mkfifo(manifest)
        self.refused(path, "manifest.json: not a regular file")

    def test_incomplete(self):
        """A part that no file has is missed, also where another is twice"""
        path = self.copy()
        shard = os.path.join(path, "rank-00001.safetensors")
        with open(shard, "rb") as f:
            size, = struct.unpack("<Q", f.read(8))
            head = f.read(size)
            data = f.read()
        # tp rank 1's columns and rows become those of tp rank 0
        wrong = json.loads(head)
        places = json.loads(wrong["__metadata__"]["plait"])
        moved = [p for p in places.values() if p["begin"] != [0, 0]]
        self.assertTrue(moved)
        for place in moved:
            place["begin"] = [0, 0]
        wrong["__metadata__"]["plait"] = json.dumps(places)
        text = json.dumps(wrong).encode()
        with open(shard, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data)
        manifest = os.path.join(path, "manifest.json")
        with open(manifest) as f:
            m = json.load(f)
        for file in m["files"]:
            file["bytes"] = os.path.getsize(os.path.join(path, file["name"]))
        del m["checksum"], m["settings"]
        with open(manifest, "w") as f:
            json.dump(m, f)
        self.refused(path, "incomplete: no file has all of tensor")

    def test_hostile(self):
        """Heads that are damaged at random are refused or read, and nothing
        else is raised"""
        draw = random.Random(3)
        path = self.copy("one")
        shard = os.path.join(path, "rank-00000.safetensors")
        with open(shard, "rb") as f:
            good = f.read()
        size = 8 + struct.unpack("<Q", good[:8])[0]
        refused = 0
        for _ in range(400):
            bad = bytearray(good)
            for _ in range(draw.randint(1, 3)):
                at = draw.randrange(size)
                bad[at] = draw.choice(b'0123456789"[]{}:,\x00\xff-e')
            with open(shard, "wb") as f:
                f.write(bad)
            try:
                plait.checkpoint.load(path)
            except plait.Error as why:
                refused += 1
                self.assertIn("rank-00000.safetensors", str(why)
                              .replace(f"{path}: incomplete",
                                       "rank-00000.safetensors"))
        self.assertGreater(refused, 100)

    def test_metrics(self):
        """metrics() has the rows; half of a last line is skipped and
        counted"""
        path = self.path("one.jsonl")
        rows = plait.metrics(path)
        self.assertEqual([r["step"] for r in rows], [1, 2, 3, 4])
        self.assertEqual(rows.skipped, 0)
        with open(path) as f:
            self.assertEqual(list(rows), [json.loads(x) for x in f])
        run = self.path("run")
        shutil.rmtree(run, ignore_errors=True)
        os.mkdir(run)
        with open(path, "rb") as f, open(os.path.join(run, "m.jsonl"),
                                         "wb") as out:
            out.write(f.read()[:-30])
        with open(os.path.join(run, "data.jsonl"), "w") as out:
            out.write('{"text": "no metrics"}\n')
        rows = plait.metrics(run)
        self.assertEqual(([r["step"] for r in rows], rows.skipped),
                         ([1, 2, 3], 1))
        self.assertEqual(rows.path, os.path.join(run, "m.jsonl"))

    def test_follow_metrics(self):
        """examples/follow_metrics.py has each line once, to a run's last"""
        sys.path.insert(0, os.path.join(SOURCE, "examples"))
        import follow_metrics

        with open(self.path("one.jsonl")) as f:
            lines = f.readlines()
        half = lines[1][:20] + "\n"
        path = self.path("follow")
        with open(path, "w") as out:
            out.writelines([*lines[:2], half, *lines])
        rows = list(follow_metrics.rows(path))
        self.assertEqual([r["step"] for r in rows], [1, 2, 1, 2, 3, 4])
        with open(path, "a") as out:  # another start of the run
            out.writelines(lines)
        self.assertEqual(len(list(follow_metrics.rows(path))), 10)
        # its start is read, and half of a line, before the rest is written
        with open(path, "w") as out:
            out.write(lines[0] + lines[1][:20])
        following = follow_metrics.rows(path)
        self.assertEqual(next(following), rows[0])
        with open(path, "a") as out:
            out.write(lines[1][20:] + "".join(lines[2:]))
        self.assertEqual(list(following), rows[3:])
        self.assertEqual(follow_metrics.numbers(
            {"step": 1, "a": {"b": None, "c": 2}, "outlier": True, "d": [1]}),
            {"step": 1.0, "a/c": 2.0, "outlier": 1.0})

    def test_metrics_refused(self):
        """What has no metrics is refused, with its name"""
        empty = self.path("empty")
        os.makedirs(empty, exist_ok=True)
        for path, words in ((empty, "it contains no metrics"),
                            (self.path("nowhere.jsonl"), "No such file"),
                            (self.path("c.yaml"), "none of its"),
                            (self.folder, "metrics files; name one")):
            with self.assertRaises(plait.Error) as why:
                plait.metrics(path)
            self.assertIn(words, str(why.exception))


class Package(unittest.TestCase):
    def test_version(self):
        """The package has Plait's version"""
        said = subprocess.run([os.path.join(BUILD, "plait"), "--version"],
                              stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(said.decode().split()[1], plait.__version__)

    def test_no_numpy(self):
        """checkpoint.load() without numpy says so"""
        own = sys.modules.get("numpy")
        sys.modules["numpy"] = None
        try:
            with self.assertRaisesRegex(plait.Error, "needs numpy: pip"):
                plait.checkpoint.load("/nowhere")
        finally:
            if own:
                sys.modules["numpy"] = own
            else:
                del sys.modules["numpy"]


tap.main()
