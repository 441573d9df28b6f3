#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each class of error is put into a copy of a kernel, and must be found.

    mutants.py TOP_SRCDIR MODULE_FOLDER TEST_PROGRAM

MODULE_FOLDER has the module that was built from the kernels as they are; of a
mutant only what it changes is compiled. TAP on stdout.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

# what it is, file, text, what becomes of it, the case that runs it, what is
# said of it
MUTANTS = [
    ('a barrier between write and read left out', 'reduce.cu',
     'shared[threadIdx.y][threadIdx.x] = sum;\n    __syncthreads();',
     'shared[threadIdx.y][threadIdx.x] = sum;', 'layernorm_backward',
     'race|shared memory that nobody has written'),
    ('a barrier between read and write left out', 'attention.cu',
     '__syncthreads();\n        load_tile(k,', 'load_tile(k,',
     'attention_forward', 'race: (read|write) of shared memory'),
    ('a barrier of a warp left out', 'attention.cu',
     '__syncwarp(); /* a row lies within a warp */', '', 'attention_forward',
     'race|shared memory that nobody has written'),
    ('a row of a table below its first', 'embedding.cu',
     'if (token >= 0 && token < count)', 'if (token < count)', 'embedding',
     'read out of bounds'),
    ('rows too many', 'norm.cu',
     'i < N; i += gridDim.x) {\n        float total = 0',
     'i < N + 4096; i += gridDim.x) {\n        float total = 0',
     'rmsnorm_forward', 'out of bounds'),
    ('16 bytes at an address for 4', 'reduce.cu',
     'rows_aligned16<T>(dout, O);', 'true;', 'bias_backward',
     'misaligned access of 16 bytes'),
    ('sums in shared memory that nobody set to 0', 'norm.cu',
     'dgamma[c + j] = 0;', '', 'layernorm_backward',
     'read of shared memory that nobody has written'),
    ('a mask of half a warp', 'xent.cu',
     '__shfl_xor_sync(0xffffffff, s.max, i)',
     '__shfl_xor_sync(0xffff, s.max, i)', 'xent_stats',
     'not in (its own|the) mask'),
    ('half a warp in a shuffle', 'route.cu', '    sum = warp_sum(sum);',
     '    if (threadIdx.x % 32 < 16)\n        sum = warp_sum(sum);',
     'rows_spread', 'do not come|have left'),
    ('threads that leave before a barrier', 'route.cu',
     'int at = rank_of<threads>(expert, i, n, other);',
     'if (i >= n)\n        return;\n'
     '    int at = rank_of<threads>(expert, i, n, other);', 'route_forward',
     'divergent barrier'),
    ('shared memory that was not asked for', 'attention_mma.cu',
     'if (cuda_allow_shared(q, "attention_forward", (const void *)kernel,\n'
     '                              bytes) == 0)', 'if (bytes > 0)',
     'attention_forward', 'bytes of shared memory, allowed are'),
    ('more shared memory than a block can have', 'attention.cu',
     'shared_bytes(q, (const void *)kernel, op, D, 3, 1)',
     'shared_bytes(q, (const void *)kernel, op, D, 1, 1)',
     'attention_forward', 'out of bounds'),
    ('more threads than the bounds of a launch', 'xent.cu',
     '__launch_bounds__(whole_threads)', '__launch_bounds__(512)', 'xent',
     'its bounds say 512'),
    ('a copy that is not waited for', 'attention_mma.cu', 'copy_wait<1>();',
     'copy_wait<2>();', 'attention_forward',
     'while a copy to it is under way'),
    ('a copy into what is still read', 'attention_mma.cu',
     '__syncthreads();\n    }\n    copy_wait<0>();', '}\n    copy_wait<0>();',
     'attention_forward', 'race|while a copy to it is under way'),
    ('two blocks that write to one place', 'reduce.cu',
     'part[blockIdx.y * O + c] = total;', 'part[c] = total;',
     'bias_backward', 'memory that another block writes'),
    ('a maximum that begins with garbage', 'fp8_round.cu',
     'cudaMemsetAsync(t->amax, 0, sizeof(*t->amax), q->stream)',
     'cudaSuccess', 'fp8_forward', 'global memory that nobody has written'),
    ('a word of an array of bytes', 'fp8_round.cu',
     '__shared__ __align__(4) unsigned char', '__shared__ unsigned char',
     'fp8_forward', 'misaligned access of 4 bytes'),
    ('a grid that is too high', 'elementwise.cu',
     'grid_for(q, ceil_div(n, 4), threads), threads, 0,\n'
     '                          q->stream>>>((D *)dst',
     'dim3(1, 70000), threads, 0,\n'
     '                          q->stream>>>((D *)dst', 'cast',
     'a grid of 1 x 70000'),
    ('an instruction of another shape', 'fp8_round.cu',
     'if (threadIdx.x % 32 == 0)\n        atomicMax(amax, most);',
     'asm volatile("mma.sync" ::"r"(most));', 'fp8_forward',
     'unknown instruction'),
    ('a wrong number', 'attention_mma.cu', 'm[half] - base', 'm[half]',
     'attention_forward', 'expected'),
]


def build(top, base, folder, mutant):
    what, name, old, new, case, says = mutant
    cuda = os.path.join(folder, 'kernels', 'cuda')
    shutil.copytree(os.path.join(top, 'kernels', 'cuda'), cuda)
    path = os.path.join(cuda, name)
    with open(path) as f:
        text = f.read()
    if text.count(old) != 1:
        raise ValueError('%s has this %d times: %s' %
                         (name, text.count(old), old))
    with open(path, 'w') as f:
        f.write(text.replace(old, new))
    out = os.path.join(folder, 'out')
    shutil.copytree(base, out, copy_function=shutil.copy2)
    os.unlink(os.path.join(out, 'plait_cuda.so'))
    os.unlink(os.path.join(out, 'kernels', name.replace('.cu', '.o')))
    subprocess.run(
        ['make', '-s', '-f', top + '/tests/gpu/emulated/module.mk',
         'top_srcdir=' + top, 'cuda=' + folder, 'out=' + out,
         'CC=' + os.environ.get('CC', 'gcc'),
         'CXX=' + os.environ.get('CXX', 'g++')], check=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return out


def run(top, base, program, mutant):
    """'' where it is found, else why not."""
    what, name, old, new, case, says = mutant
    with tempfile.TemporaryDirectory() as folder:
        try:
            out = build(top, base, folder, mutant)
        except ValueError as e:
            return str(e)
        except subprocess.CalledProcessError as e:
            return e.stdout.decode()[-2000:]
        done = subprocess.run(
            [program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=dict(os.environ, PLAIT_MODULE_PATH=out,
                     PLAIT_TEST_CASES=case, PLAIT_TEST_SEED='1'))
    text = done.stdout.decode()
    if re.search(says, text):
        return ''
    return 'not found: ' + text[-1500:]


def main():
    top, base, program = sys.argv[1:]
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda m: run(top, base, program, m), MUTANTS)
        for i, (mutant, why) in enumerate(zip(MUTANTS, results)):
            print('%sok %d - found: %s (%s)' %
                  ('not ' if why else '', i + 1, mutant[0], mutant[1]),
                  flush=True)
            for line in why.splitlines():
                print('# ' + line)
            failed += why != ''
    print('1..%d' % len(MUTANTS))
    sys.exit(failed > 0)


main()
