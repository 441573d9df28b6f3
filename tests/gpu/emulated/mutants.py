#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts each class of error into a copy of a kernel or of the code around it,
and checks that the emulated GPU finds it.

    mutants.py kernels|streams TOP_SRCDIR MODULE_FOLDER TEST_PROGRAMS

MODULE_FOLDER has the modules built from the unchanged sources, TEST_PROGRAMS
the programs that run them; for a mutant, only the changed file is compiled.
TAP on stdout.
"""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

# name, file, text, its replacement, the case that runs it, the expected report
MUTANTS = [
    ('a barrier between write and read left out', 'reduce.cu',
     'shared[threadIdx.y / 4][threadIdx.x] = sum;\n    __syncthreads();',
     'shared[threadIdx.y / 4][threadIdx.x] = sum;', 'layernorm_backward',
     'race|shared memory that nobody has written'),
    ('a barrier between read and write left out', 'attention.cu',
     '__syncthreads();\n        load_tile(k,', 'load_tile(k,',
     'attention_forward', 'race: (read|write) of shared memory'),
    ('a barrier of a warp left out', 'attention.cu',
     'acc[j] *= shrink;\n        __syncwarp();', 'acc[j] *= shrink;',
     'attention_forward',
     'race|shared memory that nobody has written'),
    ('a row of a table below its first', 'embedding.cu',
     'if (token >= 0 && token < e.count)', 'if (token < e.count)', 'embedding',
     'read out of bounds'),
    ('a grid of no blocks', 'embedding.cu', 'e->dwte != NULL && count > 0',
     'e->dwte != NULL', 'embedding', 'a grid of 0 x'),
    ('rows too many', 'norm.cu',
     'i < n.N ? C : 0};', 'C};', 'rmsnorm_forward', 'out of bounds'),
    ('16 bytes at an address for 4', 'reduce.cu',
     'rows_aligned16<T>(dout, O);', 'true;', 'bias_backward',
     'misaligned access of 16 bytes'),
    ('sums in shared memory that nobody set to 0', 'norm.cu',
     'dgamma[c] = 0; /* and dbeta, which follows */', '(void)c;',
     'layernorm_backward',
     'read of shared memory that nobody has written'),
    ('a mask of half a warp', 'xent.cu',
     '__shfl_xor_sync(0xffffffff, s.max, i)',
     '__shfl_xor_sync(0xffff, s.max, i)', 'xent_stats',
     'not in (its own|the) mask'),
    ('half a warp in a shuffle', 'route.cu', '    sum = warp_sum(sum);',
     '    if (threadIdx.x % 32 < 16)\n        sum = warp_sum(sum);',
     'rows_spread', 'do not come|have left'),
    ('threads that leave before a barrier', 'route.cu',
     'tile[threadIdx.x] = mine;\n    __syncthreads();',
     'if (i >= n)\n        return;\n'
     '    tile[threadIdx.x] = mine;\n    __syncthreads();', 'route_forward',
     'divergent barrier'),
    ('shared memory that was not asked for', 'attention_mma.cu',
     'if (cuda_allow_shared(q, "attention_forward", (const void *)kernel,\n'
     '                              bytes) == 0)', 'if (bytes > 0)',
     'attention_forward', 'bytes of shared memory, allowed are'),
    ('more shared memory than a block can have', 'attention.cu',
     'a->head_dim, PLAIT_FORWARD_TILES,', 'a->head_dim, 1,',
     'attention_forward', 'out of bounds'),
    ('more threads than the bounds of a launch', 'xent.cu',
     '__launch_bounds__(whole_threads, 2)', '__launch_bounds__(512)', 'xent',
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
     'clear_amax(q, "fp8", amax);', '', 'fp8_forward', 'global memory that nobody has written'),
    ('a word of an array of bytes', 'fp8_round.cu',
     '__shared__ __align__(4) unsigned char', '__shared__ unsigned char',
     'fp8_forward', 'misaligned access of 4 bytes'),
    ("fast sums in weights' gradients", 'fp8.c',
     'key->fast = p->out != PLAIT_F32;', 'key->fast = 1;', 'fp8',
     'fast sums in a product'),
    ('a grid that is too high', 'elementwise.cu',
     'grid_for(q, ceil_div(n, 4), threads), threads, 0,\n'
     '                          q->stream>>>((D *)c->dst',
     'dim3(1, 70000), threads, 0,\n'
     '                          q->stream>>>((D *)c->dst', 'cast',
     'a grid of 1 x 70000'),
    ('an instruction of another shape', 'fp8_round.cu',
     'block_amax(amax, most, mosts);',
     'asm volatile("mma.sync" ::"r"(most), "l"(mosts));', 'fp8_forward',
     'unknown instruction'),
    ('rows of the next group', 'grouped.cu', 'if (r < t.rows && at < t.cols)',
     'if (at < t.cols)', 'grouped_forward',
     'expected|out of bounds|another block writes'),
    ('terms of the next group', 'grouped.cu',
     'bool valid = r < end_row && piece * 8 < end_col;',
     'bool valid = piece * 8 < end_col;', 'grouped_backward_weight',
     'expected|out of bounds'),
    ('a tile that is used before all have filled it', 'grouped.cu',
     '(b, y, t.col, t.cols, k, t.depth);\n        __syncthreads();',
     '(b, y, t.col, t.cols, k, t.depth);', 'grouped_forward',
     'race|shared memory that nobody has written'),
    ('a tile that is filled while others read it', 'grouped.cu',
     'copy_wait<0>();\n        __syncthreads();', 'copy_wait<0>();',
     'grouped_forward', 'race|cp.async|nobody has written'),
    ('a wrong number', 'attention_mma.cu', 'row.m[half] - base', 'row.m[half]',
     'attention_forward', 'expected'),
]


UNORDERED = 'neither an event nor a synchronisation between'
# name, file, text, its replacement, the program that runs it, the expected
# report
STREAMS = [
    ('an event that is not waited for', 'device.c',
     'cudaStreamWaitEvent(q->stream, ev->event, 0)', 'cudaSuccess',
     'test_streams', UNORDERED),
    ('an event that is not recorded', 'device.c',
     'cudaEventRecord(ev->event, q->stream)', 'cudaSuccess', 'test_streams',
     UNORDERED),
    ('zeros of the default stream that are not waited for', 'device.c',
     'cudaStreamSynchronize(NULL) == cudaSuccess', 'cudaSuccess == cudaSuccess',
     'test_streams', UNORDERED),
    ('a host buffer that is filled again too early', 'transfer.c',
     'cudaEventSynchronize(s->done)', 'cudaSuccess', 'test_streams',
     'the host writes byte'),
    ('a host buffer whose copies nobody records', 'transfer.c',
     'cudaEventRecord(s->done, q->stream)', 'cudaSuccess', 'test_streams',
     'the host uses byte'),
    ('a host buffer that is read too early', 'transfer.c',
     'cudaEventSynchronize(last->done)', 'cudaSuccess', 'test_streams',
     'the host uses byte'),
    ('sums that are read before they are there', 'device.c',
     'cudaEventSynchronize(ev->event));', 'cudaSuccess);', 'test_streams',
     'the host uses byte'),
    ('a host buffer that is freed too early', 'pinned.c',
     'cudaDeviceSynchronize();', '', 'test_streams',
     'cudaFreeHost: allocation .* is given back while cudaMemcpyAsync'),
    ('an allocation inside a capture', 'device.c',
     's != NULL && s->bytes >= bytes', 's != NULL && bytes == 0',
     'test_streams', 'cudaMalloc while stream 1 is recorded'),
    ('a synchronisation inside a capture', 'device.c',
     '    return cuda_check(q, "event_record",',
     '    cudaStreamSynchronize(q->stream);\n'
     '    return cuda_check(q, "event_record",', 'test_streams',
     'cudaStreamSynchronize while stream 1 is recorded'),
    ('a capture that another stream does not come back from', 'device.c',
     'cudaStreamWaitEvent(q->stream, ev->event, 0)',
     'q->recording ? cudaSuccess : '
     'cudaStreamWaitEvent(q->stream, ev->event, 0)', 'test_streams',
     'ends before stream 2'),
    ('memory that is freed too early', 'device.c',
     'cudaSetDevice(dev->index);\n        cudaDeviceSynchronize();',
     'cudaSetDevice(dev->index);', 'test_streams',
     'cudaFree: allocation .* is given back while'),
    ('memory that is freed twice', 'device.c',
     '    cudaFree(ptr);\n}', '    cudaFree(ptr);\n    cudaFree(ptr);\n}',
     'test_streams', 'no memory that it could give back, or no longer'),
    ('an event that is not destroyed', 'device.c',
     'cudaEventDestroy(ev->event);', '', 'test_streams', 'left-events 1'),
    ('a graph that is not destroyed', 'graph.c',
     'cudaGraphExecDestroy(graph->exec);', '', 'test_streams',
     'left-graphs 1'),
    ('a transfer that does not wait for what it sends', 'nccl_transfer.c',
     'c->base.ops->event_wait(event, later)', '0 * (later == NULL)',
     'test_comms', UNORDERED),
    ('a transfer that nobody waits for', 'nccl_transfer.c',
     'c->base.ops->event_wait(r->done, q)', '0 * (q == NULL)', 'test_comms',
     UNORDERED),
    ('a transfer without a request that nobody waits for', 'nccl_transfer.c',
     'c->base.ops->event_wait(event, q)', '0 * (q == NULL)', 'test_comms',
     UNORDERED),
    ('a product for all multiprocessors beside a transfer', 'matmul_plan.c',
     'CUBLAS_STATUS_SUCCESS && sms > 0)', 'CUBLAS_STATUS_SUCCESS && sms < 0)',
     'test_comms', 'product for 132 multiprocessors may run beside nccl'),
    ('transfers that leave no multiprocessors to others', 'nccl_transfer.c',
     'count_open(c, r->each, 1);', ';', 'test_comms',
     'product for 132 multiprocessors may run beside nccl'),
    ('room that is kept after the transfer', 'nccl_transfer.c',
     'count_open(nccl_of(r->base.comm), r->each, -1);', ';', 'test_comms',
     'not ok .*products leave room to the transfers'),
    ('messages that are no group', 'nccl_transfer.c',
     '    r = ncclGroupStart();\n    for (struct nccl_request',
     '    ncclGroupStart();\n    r = ncclGroupEnd();\n'
     '    for (struct nccl_request', 'test_comms',
     'they enter transfers in different orders'),
    ('a communicator that is not destroyed', 'nccl.c',
     'ncclCommDestroy(nccl);', '(void)nccl;', 'test_comms',
     'left-communicators 3'),
    ('a communicator that is used after it was aborted', 'nccl_world.c',
     '    c->nccl = NULL;\n', '', 'test_lost',
     'of communicator .*, which was aborted before'),
    ('communicators that are aborted one by one', 'nccl_wait.c',
     '    ncclGroupStart();\n', '', 'test_lost',
     'waits for graphs that nobody destroys|has ended, and nobody aborts it'),
    ('a loss that nobody looks for', 'nccl_world.c',
     'w->host->vtable->look(w->host)', '0', 'test_lost',
     'has ended, and nobody aborts it'),
    ('a wait without a limit', 'nccl_wait.c', 'c->late = true;', '(void)until;',
     'test_waits', 'not ok .* never connects: both ranks end'),
    ('an abort without a limit', 'nccl.c',
     'nccl_abort_late(nccl);', 'ncclCommAbort(nccl);',
     'test_waits', 'not ok .* abort never ends either: both ranks end'),
    ('a rank that is late and does not say so', 'nccl.c',
     'c->late ? ETIMEDOUT : EIO', 'c->late ? EIO : EIO', 'test_waits',
     'not ok [2-6] '),
    ('memory whose registration has not ended', 'nccl_memory.c',
     '!c->late && (state == ncclSuccess', '(state == ncclSuccess',
     'test_waits', 'not ok 1[012] '),
    ('an error of NCCL that nobody asks for', 'nccl_world.c', '!ask_all(w)',
     'w->noticed == 0', 'test_waits',
     'not ok .*a link that fails while a kernel waits: both ranks end'),
    ("an error without NCCL's text", 'nccl_world.c',
     'detail = ncclGetLastError(c->nccl);', '', 'test_waits', 'not ok 14 '),
]


# ends the run: a save that forgets to wait for weights is no disk that failed
UNSETTLED = '^plait-train: .*Operation now in progress'

# name, source, text, its replacement, settings of the run, the expected report
GATHERS = [
    ('a pass that does not wait for its weights',
     'runtime/parallel/gradsync.c', 'plait_shards_await(sync->shards, i) < 0',
     'false', 'parallel.zero=1', UNORDERED),
    ('weights that are there before they are waited for',
     'runtime/parallel/shard.c',
     'return g->begun ? plait_shard_gathered(shards->model->mesh, g) : 0;',
     'g->begun = false;\n    return 0;', 'parallel.zero=2', UNORDERED),
    ('a replayed pass that waits for no weights',
     'runtime/parallel/captured_pass.c',
     'hooks->awaits && hooks->awaits(hooks->arg)', 'hooks->awaits && false',
     'parallel.zero=1', UNORDERED),
    ('a checkpoint of weights that are still gathered', 'runtime/train/run.c',
     '!plait_run_save_due(r, step);', 'true;', 'checkpoint.every=3',
     UNSETTLED),
    ('replicas compared while weights are still gathered',
     'runtime/train/run.c', '!is_due(step, c->train.check_replicas)', 'true',
     'train.check_replicas=3', UNSETTLED),
    ('copies of weights that are still gathered', 'runtime/train/run.c',
     '!is_due(step, c->checkpoint.memory)', 'true', 'checkpoint.memory=3',
     UNSETTLED),
    ('a head whose forward is queued and whose backward is replayed',
     'topology/job/recorded.c',
     'c->parallel.zero == 2 && size[PLAIT_PP] > 1', 'false',
     'parallel.zero=2 model.layers=4 parallel.schedule=interleaved '
     'parallel.virtual=2', 'step failed: Protocol error'),
    ('the last checkpoint of weights that are still gathered',
     'runtime/train/run.c', 'step < c->train.steps', 'true',
     'checkpoint.every=0', UNSETTLED),
]


# of a program; the longest, which waits for a rank that has ended, takes 30
LIMIT_S = 150


def folder_of(name):
    return 'runtime/comm/nccl' if name.startswith('nccl') else 'kernels/cuda'


def object_of(name):
    folder = ('comm' if name.startswith('nccl') else
              'host' if name.endswith('.c') else 'kernels')
    return '%s/%s.o' % (folder, os.path.splitext(name)[0])


def build(top, base, folder, mutant):
    what, name, old, new, case, says = mutant
    shutil.copytree(os.path.join(top, 'kernels', 'cuda'),
                    os.path.join(folder, 'kernels', 'cuda'))
    shutil.copytree(os.path.join(top, 'runtime', 'comm', 'nccl'),
                    os.path.join(folder, 'runtime', 'comm', 'nccl'))
    path = os.path.join(folder, folder_of(name), name)
    with open(path) as f:
        text = f.read()
    if text.count(old) != 1:
        raise ValueError('%s has this %d times: %s' %
                         (name, text.count(old), old))
    with open(path, 'w') as f:
        f.write(text.replace(old, new))
    out = os.path.join(folder, 'out')
    shutil.copytree(base, out, copy_function=lambda source, target:
                    os.symlink(os.path.abspath(source), target))
    made = object_of(name)
    # Remove links to what make rebuilds: it would overwrite the originals.
    for gone in [made, made[:-1] + 'd', 'plait_nccl.so'] + (
            [] if name.startswith('nccl') else ['plait_cuda.so']) + (
            ['source/kernels/cuda/' + name[:-2] + 'cc']
            if name.endswith('.cu') else []):
        os.unlink(os.path.join(out, gone))
    subprocess.run(
        ['make', '-s', '-f', top + '/tests/gpu/emulated/module.mk',
         'top_srcdir=' + top, 'cuda=' + folder, 'out=' + out,
         'CC=' + os.environ.get('CC', 'gcc'),
         'CXX=' + os.environ.get('CXX', 'g++')], check=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return out


def run_program(command, env):
    """Run it for LIMIT_S at most: one that hangs has found nothing. Its file is
    no pipe, which processes that it left would keep open."""
    with tempfile.TemporaryFile('w+') as out:
        with subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT,
                              env=env, start_new_session=True) as program:
            try:
                program.wait(LIMIT_S)
                said = ''
            except subprocess.TimeoutExpired:
                said = '\nhas not ended after %d s' % LIMIT_S
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
        out.seek(0)
        return subprocess.CompletedProcess(command, program.returncode,
                                           out.read() + said)


def run(top, base, programs, mutant):
    """Return '' if the mutant is found, else why not."""
    what, name, old, new, case, says = mutant
    with tempfile.TemporaryDirectory() as folder:
        try:
            out = build(top, base, folder, mutant)
        except ValueError as e:
            return str(e)
        except subprocess.CalledProcessError as e:
            return e.stdout.decode()[-2000:]
        calls = os.path.join(folder, 'calls')
        program = case if case.startswith('test_') else 'test_ops'
        done = run_program(
            [os.path.join(programs, program)],
            env=dict(os.environ, PLAIT_MODULE_PATH=out, EMULATED_CALLS=calls,
                     PLAIT_TEST_CASES=case, PLAIT_TEST_SEED='1'))
        text = done.stdout
        if os.path.exists(calls):
            with open(calls) as f:
                text += f.read()
    if re.search(says, text):
        return ''
    return 'not found: ' + text[-1500:]


def run_train(top, base, programs, mutant):
    """The same for a mistake in plait-train, which gathers.sh starts."""
    what, name, old, new, settings, says = mutant
    env = dict(os.environ)
    goes_on = 'memory' in settings  # where one rank alone finds it
    if goes_on:
        env['elastic'] = '--elastic'
    if 'virtual' in settings:
        env.update(ranks='4', layout='--dp=2 --pp=2')
    if 'replicas' in settings:  # tensor ranks have some weights twice
        env.update(ranks='4', layout='--dp=2 --tp=2')
    with open(os.path.join(top, name)) as f:
        text = f.read()
    if text.count(old) != 1:
        return '%s has this %d times: %s' % (name, text.count(old), old)
    with tempfile.TemporaryDirectory() as folder:
        changed = os.path.join(folder, 'changed.c')
        with open(changed, 'w') as f:
            f.write(text.replace(old, new))
        made = subprocess.run(
            ['make', '-s', '-C', os.path.join(programs, '../../..'),
             'emulated-mutant', 'changed=' + changed, 'to=' + folder],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if made.returncode:
            return made.stdout.decode()[-2000:]
        done = run_program(
            ['sh', os.environ['GATHERS'], os.path.join(folder, 'plait-train'),
             os.path.join(folder, 'saved')] + settings.split(),
            env=env)
    text = done.stdout
    if (done.returncode or goes_on) and re.search(says, text, re.M):
        return ''
    return 'not found: ' + text[-1500:]


def main():
    which, top, base, programs = sys.argv[1:]
    mutants = {'streams': STREAMS, 'gathers': GATHERS}.get(which, MUTANTS)
    try_one = run_train if which == 'gathers' else run
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda m: try_one(top, base, programs, m), mutants)
        for i, (mutant, why) in enumerate(zip(mutants, results)):
            print('%sok %d - found: %s (%s)' %
                  ('not ' if why else '', i + 1, mutant[0], mutant[1]),
                  flush=True)
            for line in why.splitlines():
                print('# ' + line)
            failed += why != ''
    print('1..%d' % len(mutants))
    sys.exit(failed > 0)


main()
