/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint_util.h"
#include "tap.h"

/* One rank: checkpoints that are written while training goes on. */

static int same_files(const char *a, const char *b)
{
    char command[512];

    snprintf(command, sizeof(command), "diff -r %s %s", a, b);
    return system(command) == 0;
}

static void equals_blocking(struct job *job)
{
    struct plait_error err = {""};
    struct plait_saver *s = saver(job, in_dir("aside"));
    const char *path = in_dir("aside/step-00000030");
    char there[160];

    snprintf(there, sizeof(there), "%s", path);
    fill(job, 0);
    ok(save(job, 30, 0, &err) == 0, "a blocking save %s", err.text);
    atomic_store(&gate_shut, true);
    ok(start_save(s, 30, &err) == 0, "a save begins %s", err.text);
    fill(job, -1);
    until_there(in_dir("aside/.step-00000030/rank-00000.safetensors"));
    ok(plait_saver_poll(s, &err) == 0 && access(there, F_OK) < 0,
       "training goes on; what is half written is hidden %s", err.text);
    atomic_store(&gate_shut, false);
    ok(poll_until(s, there, &err) == 0, "it comes into place %s", err.text);
    ok(same_files(in_dir("step-00000030"), there),
       "and is the blocking one, bit for bit");
    plait_saver_destroy(s);
    fill(job, 0);
}

static void *open_gate(void *unused)
{
    usleep(100000);
    atomic_store(&gate_shut, false);
    return unused;
}

static void one_after_the_other(struct job *job)
{
    struct plait_error err = {""};
    struct plait_saver *s = saver(job, in_dir("aside"));
    pthread_t thread;

    atomic_store(&gate_shut, true);
    ok(start_save(s, 40, &err) == 0, "a first save %s", err.text);
    pthread_create(&thread, NULL, open_gate, NULL);
    ok(start_save(s, 50, &err) == 0 &&
           access(in_dir("aside/step-00000040"), F_OK) == 0,
       "a second one waits for it %s", err.text);
    pthread_join(thread, NULL);
    ok(plait_saver_finish(s, &err) == 0 && plait_saver_poll(s, &err) == 0 &&
           load(job, "aside/step-00000050", &err) == 0,
       "and comes into place at the end %s", err.text);
    plait_saver_destroy(s);
}

static void killed(struct job *job)
{
    struct plait_error err = {""};
    struct plait_saver *s = saver(job, in_dir("aside"));
    int64_t step = 0;
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        atomic_store(&gate_shut, true);
        start_save(s, 60, &err);
        until_there(in_dir("aside/.step-00000060/rank-00000.safetensors"));
        kill(getpid(), SIGKILL);
    }
    waitpid(pid, &status, 0);
    newest(in_dir("aside"), INT64_MAX, &step);
    ok(WIFSIGNALED(status) && step == 50 &&
           load(job, "aside/step-00000050", &err) == 0,
       "killed in the middle: the one before is there %s", err.text);
    ok(start_save(s, 70, &err) == 0 && plait_saver_finish(s, &err) == 0 &&
           access(in_dir("aside/.step-00000060"), F_OK) < 0,
       "and what it left goes in the next save %s", err.text);
    plait_saver_destroy(s);
}

static void full_disk_beside(struct job *job)
{
    struct rlimit small = {4096, RLIM_INFINITY}, before;
    struct plait_error err = {""};
    struct plait_saver *s = saver(job, in_dir("aside"));
    int64_t step = 0;

    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &small);
    ok(start_save(s, 80, &err) == 0, "the disk is full %s", err.text);
    ok(poll_until(s, in_dir("aside/step-00000080"), &err) == -1 &&
           strstr(err.text, "cannot write: File too large"),
       "%s", err.text);
    setrlimit(RLIMIT_FSIZE, &before);
    newest(in_dir("aside"), INT64_MAX, &step);
    ok(step == 70 && access(in_dir("aside/.step-00000080"), F_OK) < 0 &&
           plait_saver_poll(s, &err) == 0,
       "nothing is left of it");
    plait_saver_destroy(s);
}

int main(void)
{
    struct job job;

    if (test_open(0) < 0)
        return 1;
    signal(SIGXFSZ, SIG_IGN);
    start(&job, PLAIT_GPT2, 4, 1, 1, 1, 0);
    fill(&job, 0);
    equals_blocking(&job);
    one_after_the_other(&job);
    killed(&job);
    full_disk_beside(&job);
    stop(&job);
    ok(test_close() == 0, "cleaned up");
    return done_testing();
}
