/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_util.h"
#include "runtime/checkpoint/finite.h"
#include "runtime/checkpoint/replica_check.h"
#include "tap.h"

/* One rank: which checkpoints are kept, and what is refused. */

static void keeping(struct job *job)
{
    struct plait_error err = {""};
    int64_t step;

    ok(!*newest(in_dir("missing"), INT64_MAX, &step),
       "a missing directory has no checkpoint");
    ok(!!strstr(newest("/dev/null", INT64_MAX, &step), "Not a directory"), "%s",
       newest("/dev/null", INT64_MAX, &step));
    ok(save(job, 5, 2, &err) == 0 && save(job, 10, 2, &err) == 0 &&
           save(job, 100000000, 2, &err) == 0,
       "three saves %s", err.text);
    ok(access(in_dir("step-00000005"), F_OK) < 0 &&
           access(in_dir("step-00000010"), F_OK) == 0,
       "the newest two are kept");
    mkdir(in_dir("step-100000001"), 0777);
    mkdir(in_dir(".step-00000020"), 0777);
    mkdir(in_dir(".step-00000007.old"), 0777);
    mkdir(in_dir("step-best"), 0777);
    unlink(in_dir("latest"));
    ok(!strcmp(newest(dir, INT64_MAX, &step), in_dir("step-100000001")) &&
           step == 100000001 &&
           !strcmp(newest(dir, step, &step), in_dir("step-100000000")) &&
           !strcmp(newest(dir, step, &step), in_dir("step-00000010")) &&
           !*newest(dir, step, &step),
       "from the newest to the oldest");
    ok(save(job, 20, 0, &err) == 0 &&
           access(in_dir(".step-00000020"), F_OK) < 0 &&
           access(in_dir(".step-00000007.old"), F_OK) < 0,
       "what unfinished ones left is removed %s", err.text);
    ok(save(job, 20, 0, &err) == 0 && load(job, "step-00000020", &err) == 0,
       "the same step again %s", err.text);
    unlink(in_dir("latest"));
    mkdir(in_dir("latest"), 0777);
    ok(save(job, 20, 0, &err) < 0 && load(job, "step-00000020", &err) == 0,
       "a save that cannot end leaves the older one of its step %s", err.text);
    rmdir(in_dir("latest"));
    unlink(in_dir("step-00000010/manifest.json"));
    ok(save(job, 15, 1, &err) == 0 &&
           access(in_dir("step-00000010"), F_OK) < 0 &&
           access(in_dir("step-00000020"), F_OK) == 0,
       "later ones do not count among the newest %s", err.text);
}

/* Checkpoints later than the one saved last are of a run that was given up. */
static void latest(struct job *job)
{
    struct plait_error err = {""};
    int64_t step;
    int passed;
    char *path;

    ok(save(job, 17, 0, &err) == 0 &&
           access(in_dir("latest/manifest.json"), F_OK) == 0,
       "latest leads to the last save %s", err.text);
    path = plait_checkpoint_newest(dir, INT64_MAX, &step, &passed, &err);
    ok(path && step == 17 && passed == 3, "%d later ones are passed over",
       passed);
    free(path);
    ok(!strcmp(newest(dir, step, &step), in_dir("step-00000015")),
       "from there on to the oldest");
    unlink(in_dir("latest"));
    ok(symlink("elsewhere", in_dir("latest")) == 0 &&
           strstr(newest(dir, INT64_MAX, &step), "latest: not a link to a"),
       "%s", newest(dir, INT64_MAX, &step));
    ok(save(job, 15, 0, &err) == 0 && newest(dir, INT64_MAX, &step) &&
           step == 15,
       "the next save mends it %s", err.text);
}

static void copy_checkpoint(const char *name)
{
    char command[512];

    snprintf(command, sizeof(command), "cp -r %s/step-00000020 %s/%s", dir, dir,
             name);
    if (system(command) != 0)
        abort();
}

static void remove_checkpoint(const char *name)
{
    char command[512];

    snprintf(command, sizeof(command), "rm -r %s/%s", dir, name);
    if (system(command) != 0)
        abort();
}

static void damage(const char *file, long at, int change)
{
    FILE *f = fopen(in_dir(file), "r+");
    int c;

    if (!f || fseek(f, at, at < 0 ? SEEK_END : SEEK_SET) != 0)
        abort();
    c = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(c ^ change, f);
    fclose(f);
}

/* Where the text first occurs in a file. */
static long place_of(const char *file, const char *text)
{
    char head[8192];
    FILE *f = fopen(in_dir(file), "r");
    size_t n = f ? fread(head, 1, sizeof(head), f) : 0;
    char *at = memmem(head, n, text, strlen(text));

    if (!at)
        abort();
    fclose(f);
    return at - head;
}

/* Damages the part of a file that is read before its checksum is known: the
 * error must name the damage, not its consequences. */
static void damaged_heads(struct job *job)
{
    static const char *const at[] = {"embedding", "layers.1", "\"shape\":["};
    static const long behind[] = {0, 7, 9};
    struct plait_error err = {""};
    int i;

    for (i = 0; i < 3; i++) {
        const char *file = "head/rank-00000.safetensors";

        copy_checkpoint("head");
        damage(file, place_of(file, at[i]) + behind[i], 8);
        ok(load(job, "head", &err) == -1 && errno == EBADMSG &&
               strstr(err.text, "00000.safetensors: corrupt: its checksum is"),
           "a head that is damaged in %s: %s", at[i], err.text);
        remove_checkpoint("head");
    }
}

static void damaged(struct job *job)
{
    struct plait_error err = {""};
    struct job other;
    struct stat st;

#define REFUSED(name, says)                               \
    ok(load(job, name, &err) == -1 && errno == EBADMSG && \
           strstr(err.text, says),                        \
       "%s", err.text)

    copy_checkpoint("bit");
    damage("bit/rank-00000.safetensors", -5, 1);
    REFUSED("bit", "rank-00000.safetensors: corrupt: its checksum is");
    copy_checkpoint("cut");
    stat(in_dir("cut/rank-00000.safetensors"), &st);
    ok(truncate(in_dir("cut/rank-00000.safetensors"), st.st_size - 1) == 0,
       "cut");
    REFUSED("cut", "rank-00000.safetensors: truncated or changed:");
    copy_checkpoint("lost");
    unlink(in_dir("lost/rank-00000.safetensors"));
    REFUSED("lost", "rank-00000.safetensors: No such file");
    copy_checkpoint("manifest");
    damage("manifest/manifest.json", 1, 1);
    REFUSED("manifest", "manifest.json: corrupt: line 1");
    copy_checkpoint("empty");
    ok(truncate(in_dir("empty/manifest.json"), 0) == 0, "empty");
    REFUSED("empty", "manifest.json: corrupt");
    REFUSED("step-best", "no complete checkpoint");
    REFUSED("nowhere", "No such file or directory: no complete checkpoint");

    start(&other, PLAIT_LLAMA, 4, 1, 1, 1, 0);
    ok(load(&other, "step-00000020", &err) == -1 && errno == EINVAL &&
           strstr(err.text,
                  "other shapes: model.family was gpt2 there and is llama"),
       "%s", err.text);
    ok(load_anyway(&other, "step-00000020",
                   "model.family,model.kv_heads,model.ffn,"
                   "model.tie_embeddings",
                   &err) == -1 &&
           errno == EINVAL && strstr(err.text, "in this model"),
       "%s", err.text);
    stop(&other);
    start(&other, PLAIT_GPT2, 3, 1, 1, 1, 0);
    ok(load_anyway(&other, "step-00000020", "model.layers", &err) == -1 &&
           errno == EINVAL && strstr(err.text, "parameters, this one has"),
       "%s", err.text);
    stop(&other);
    start(&other, PLAIT_GPT2, 5, 1, 1, 1, 0);
    ok(load_anyway(&other, "step-00000020", "model.layers", &err) == -1 &&
           errno == EINVAL && strstr(err.text, "tensor layers.4"),
       "%s", err.text);
    stop(&other);
}

static void wider_model(void)
{
    struct plait_error err = {""};
    struct job other;

    start(&other, PLAIT_GPT2, 4, 1, 1, 1, 0);
    plait_optim_destroy(other.optim);
    plait_model_destroy(other.model);
    other.config.model.vocab = 300;
    other.model = plait_model_create(&other.config, other.mesh, &err);
    other.optim = plait_optim_create(other.model, &err);
    ok(load_anyway(&other, "step-00000020", "model.vocab", &err) == -1 &&
           strstr(err.text, "is [259, 48] there, [300, 48] in this model"),
       "%s", err.text);
    stop(&other);
}

/* Disk full: the old checkpoint stays, and nothing of the new one is left. */
static void full_disk(struct job *job)
{
    struct rlimit small = {4096, RLIM_INFINITY}, before;
    struct plait_error err = {""};
    int64_t step;

    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &small);
    ok(save(job, 200000000, 1, &err) == -1 &&
           strstr(err.text, "cannot write: File too large"),
       "%s", err.text);
    setrlimit(RLIMIT_FSIZE, &before);
    ok(access(in_dir(".step-200000000"), F_OK) < 0 &&
           access(in_dir("step-200000000"), F_OK) < 0,
       "nothing is left of it");
    ok(!strcmp(newest(dir, INT64_MAX, &step), in_dir("step-00000015")) &&
           access(in_dir("step-100000000"), F_OK) == 0 &&
           access(in_dir("step-00000020"), F_OK) == 0,
       "the older ones are kept");
}

/* Finds the first element that is not finite, wherever it is. */
static void finite_numbers(void)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const float good[] = {FLT_MAX, -FLT_MAX, FLT_MIN, 1e-42f, -0.0f};
    static float x[10000];
    struct plait_error err;
    int i, k, wrong = 0;

    for (i = 0; i < 10000; i++)
        x[i] = good[i % 5];
    ok(plait_finite_first_bad(x, 10000) == 10000 &&
           plait_finite_check("t", 0, x, 10000, &err) == 0,
       "the largest and the smallest are numbers");
    for (i = 0; i < 10000; i += 7)
        for (k = 0; k < 3; k++) {
            x[i] = bad[k];
            wrong += plait_finite_first_bad(x, 10000) != (size_t)i;
            x[i] = good[i % 5];
        }
    ok(wrong == 0, "each that is none is found");
    x[9] = -INFINITY;
    ok(plait_finite_check("t", 100, x, 10000, &err) == -1 && errno == EDOM &&
           !strcmp(err.text, "t has -inf at element 109"),
       "%s", err.text);
}

/* Every bit changes the hash; how the data is divided does not. */
static void hashes(void)
{
    static float x[1003];
    uint64_t whole, parts;
    int i, bit, same = 0;

    for (i = 0; i < 1003; i++)
        x[i] = 0.001f * (float)(i % 100);
    whole = plait_replica_hash(x, 0, 1003);
    parts =
        plait_replica_hash(x, 0, 400) + plait_replica_hash(x + 400, 400, 603);
    ok(whole == parts, "a hash of parts is one of the whole");
    for (i = 0; i < 1003; i++)
        for (bit = 0; bit < 32; bit++) {
            uint32_t *word = (uint32_t *)(void *)&x[i];

            *word ^= UINT32_C(1) << bit;
            same += plait_replica_hash(x, 0, 1003) == whole;
            *word ^= UINT32_C(1) << bit;
        }
    ok(same == 0, "each bit of each number is in it");
    x[0] = x[4];
    x[4] = 0;
    ok(plait_replica_hash(x, 0, 1003) != whole, "and their places");
}

int main(void)
{
    struct plait_error err;
    struct job job;

    if (test_open(0) < 0)
        return 1;
    signal(SIGXFSZ, SIG_IGN);
    finite_numbers();
    hashes();
    start(&job, PLAIT_GPT2, 4, 1, 1, 1, 0);
    fill(&job, 0);
    keeping(&job);
    latest(&job);
    damaged(&job);
    damaged_heads(&job);
    wider_model();
    full_disk(&job);
    fill(&job, -1);
    ok(load(&job, "step-00000020", &err) == 0 && is_filled(&job),
       "and they read back %s", err.text);
    stop(&job);
    ok(test_close() == 0, "cleaned up");
    return done_testing();
}
