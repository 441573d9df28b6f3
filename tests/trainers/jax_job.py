# SPDX-License-Identifier: Apache-2.0
"""JAX on processors: the mesh of `plait plan --format jax` (the first argument, or
LAYOUT), psum over each axis, a gradient over all. Joined by JOIN, the call of
docs/migrate.md and examples/jax.sbatch, or without it by JAX's own reading of Slurm.
"""
import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from record import Record, leave, planned_rank

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
if "JOIN" in os.environ:
    exec(os.environ["JOIN"])
else:
    jax.distributed.initialize()
record = Record(jax.__version__, rank=jax.process_index(),
                world=jax.process_count())
layout = json.loads((sys.argv[1:] or [os.environ["LAYOUT"]])[0])
names = tuple(layout["axis_names"])
mesh = Mesh(np.array(jax.devices()).reshape(layout["mesh_shape"]), names)
whole = PartitionSpec(names)
own = NamedSharding(mesh, whole)
at = [int(i[0]) for i in np.where(mesh.devices == jax.local_devices()[0])]
ranks = jax.make_array_from_callback(
    (jax.process_count(),), own,
    lambda _: np.array([planned_rank()], np.float32))
for axis, name in enumerate(names):
    line = mesh.devices[tuple(slice(None) if i == axis else place
                              for i, place in enumerate(at))]
    total = jax.jit(jax.shard_map(
        lambda v, over=name: jax.lax.psum(v, over), mesh=mesh, in_specs=whole,
        out_specs=whole))(ranks)
    record.group(name, [d.process_index for d in line],
                 np.asarray(total.addressable_shards[0].data)[0])


@jax.jit
def step(weight, x):
    loss, gradient = jax.value_and_grad(
        lambda w: jnp.mean((x @ w) ** 2))(weight)
    return loss, weight - 0.01 * gradient


weight = jax.device_put(np.ones((4,), np.float32),
                        NamedSharding(mesh, PartitionSpec()))
batch = jax.make_array_from_callback(
    (jax.process_count(), 4), NamedSharding(mesh, PartitionSpec(names, None)),
    lambda _: np.full((1, 4), 1.0 + planned_rank() / 8, np.float32))
for _ in range(3):
    loss, weight = step(weight, batch)
    record.step(loss)
record.write()
jax.distributed.shutdown()
leave()
