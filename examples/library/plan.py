#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Place a layout on nodes and print who is where, with ctypes.

    ./plan.py 16 'n[1-4]' 4 [FABRIC]

16 ranks on the nodes n1 to n4, 4 on each, below the switches of a
topology.conf.
"""
import ctypes
import sys
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_void_p

TP, CP, EP, DP, PP, NAXES = range(6)  # enum plait_axis
AUTO = 0
TOPOLOGY, LINEAR = range(2)  # enum plait_placement


class Error(ctypes.Structure):
    _fields_ = [("text", c_char * 512)]


library = ctypes.CDLL("libplait.so.0")


def declare(name, result, *arguments):
    function = getattr(library, "plait_" + name)
    function.restype, function.argtypes = result, arguments
    return function


E = POINTER(Error)
fabric_create = declare("fabric_create", c_void_p, c_char_p, E)
fabric_create_flat = declare("fabric_create_flat", c_void_p)
fabric_destroy = declare("fabric_destroy", None, c_void_p)
layout_create = declare(
    "layout_create", c_void_p, POINTER(c_int), c_char_p, c_int, E)
layout_destroy = declare("layout_destroy", None, c_void_p)
job_create = declare("job_create", c_void_p, c_void_p)
job_destroy = declare("job_destroy", None, c_void_p)
job_add_nodes = declare(
    "job_add_nodes", c_int, c_void_p, c_char_p, c_int, E)
job_set_fabric = declare("job_set_fabric", None, c_void_p, c_void_p)
plan_create = declare("job_plan_create", c_void_p, c_void_p, E)
plan_destroy = declare("job_plan_destroy", None, c_void_p)
plan_tasks = declare("job_plan_tasks", c_int, c_void_p)
plan_node = declare("job_plan_node", c_char_p, c_void_p, c_int)
plan_gpu = declare("job_plan_gpu", c_int, c_void_p, c_int)
plan_rank = declare("job_plan_rank", c_int, c_void_p, c_int)
plan_coordinate = declare(
    "job_plan_coordinate", c_int, c_void_p, c_int, c_int)
plan_seconds = declare("job_plan_seconds", c_double, c_void_p, c_int, c_int)


def good(value, err):
    """The pointer, or the end of the program with the library's reason."""
    if not value:
        sys.exit("plan.py: " + (err.text.decode() or "out of memory"))
    return value


def print_plan(plan):
    print("procid node gpu rank tp dp pp")
    for task in range(plan_tasks(plan)):
        print(task, plan_node(plan, task).decode(), plan_gpu(plan, task),
              plan_rank(plan, task),
              *(plan_coordinate(plan, task, axis) for axis in (TP, DP, PP)))
    print("communication: %.3f ms a step, %.3f ms in Slurm's order" % (
        1e3 * plan_seconds(plan, NAXES, TOPOLOGY),
        1e3 * plan_seconds(plan, NAXES, LINEAR)))


def main(world, nodes, tasks, fabric_file=None):
    err = Error()
    if fabric_file:
        fabric = good(fabric_create(fabric_file.encode(), byref(err)), err)
    else:
        fabric = good(fabric_create_flat(), err)
    size = (c_int * NAXES)(1, 1, 1, 1, 1)
    size[TP], size[PP], size[DP] = 2, 2, AUTO
    layout = good(layout_create(size, None, int(world), byref(err)), err)
    job = good(job_create(layout), err)
    if job_add_nodes(job, nodes.encode(), int(tasks), byref(err)) < 0:
        good(None, err)
    job_set_fabric(job, fabric)
    plan = good(plan_create(job, byref(err)), err)
    print_plan(plan)
    plan_destroy(plan)
    job_destroy(job)
    layout_destroy(layout)
    fabric_destroy(fabric)


if len(sys.argv) not in (4, 5):
    sys.exit("usage: plan.py WORLD NODES TASKS_PER_NODE [FABRIC]")
main(*sys.argv[1:])
