/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tap.h"
#include "topology/base/hostlist.h"
#include "topology/layout/launch.h"

struct env {
    int n;
    char name[64][32], value[64][1100];
};

static int env_set(void *arg, const char *name, const char *value)
{
    struct env *env = arg;
    int i;

    for (i = 0; i < env->n; i++)
        if (strcmp(env->name[i], name) == 0)
            break;
    if (i == 64)
        return -1;
    snprintf(env->name[i], sizeof(env->name[i]), "%s", name);
    snprintf(env->value[i], sizeof(env->value[i]), "%s", value);
    if (i == env->n)
        env->n++;
    return 0;
}

static const char *env_get(void *arg, const char *name)
{
    struct env *env = arg;

    for (int i = 0; i < env->n; i++)
        if (strcmp(env->name[i], name) == 0)
            return env->value[i];
    return NULL;
}

static void env_unset(struct env *env, const char *name)
{
    for (int i = 0; i < env->n; i++)
        if (strcmp(env->name[i], name) == 0)
            strcpy(env->name[i], "-");
}

/* Rank 13 of tp 2, cp 1, dp 4, pp 2 with ep 2, 8 tasks on each of 2 nodes */
static struct plait_launch example(void)
{
    struct plait_launch l;

    memset(&l, 0, sizeof(l));
    plait_layout_init(&l.layout);
    l.layout.size[PLAIT_TP] = 2;
    l.layout.size[PLAIT_EP] = 2;
    l.layout.size[PLAIT_DP] = 4;
    l.layout.size[PLAIT_PP] = 2;
    l.rank = 13;
    l.world_size = 16;
    l.local_rank = 5;
    l.domain = 2;
    l.local_world_size = 8;
    l.node_rank = 1;
    l.nnodes = 2;
    plait_layout_coord(&l.layout, l.rank, &l.coord);
    l.gpu = 5;
    strcpy(l.gpu_busid, "0000:47:00.0");
    strcpy(l.nics, "mlx5_4,mlx5_5");
    strcpy(l.cpus, "40-47,168-175");
    strcpy(l.jobid, "1234.0");
    strcpy(l.secret, "00112233445566778899aabbccddeeff");
    strcpy(l.master_addr, "node7");
    l.master_port = 29512;
    return l;
}

static void is(struct env *env, const char *name, const char *want)
{
    const char *got = env_get(env, name);

    if (!ok(got && strcmp(got, want) == 0, "%s=%s", name, want))
        diag("got: %s", got ? got : "(unset)");
}

static void test_encode(void)
{
    static const char *const want[][2] = {
        {"PLAIT_RANK", "13"},
        {"PLAIT_WORLD_SIZE", "16"},
        {"PLAIT_LOCAL_RANK", "5"},
        {"PLAIT_LOCAL_WORLD_SIZE", "8"},
        {"PLAIT_NODE_RANK", "1"},
        {"PLAIT_NNODES", "2"},
        {"PLAIT_TP_SIZE", "2"},
        {"PLAIT_TP_RANK", "1"},
        {"PLAIT_CP_SIZE", "1"},
        {"PLAIT_CP_RANK", "0"},
        {"PLAIT_EP_SIZE", "2"},
        {"PLAIT_EP_RANK", "0"},
        {"PLAIT_DP_SIZE", "4"},
        {"PLAIT_DP_RANK", "2"},
        {"PLAIT_PP_SIZE", "2"},
        {"PLAIT_PP_RANK", "1"},
        {"PLAIT_ORDER", "tp-cp-ep-dp-pp"},
        {"PLAIT_GPU", "5"},
        {"PLAIT_GPU_BUSID", "0000:47:00.0"},
        {"PLAIT_NICS", "mlx5_4,mlx5_5"},
        {"PLAIT_NVLINK_DOMAIN", "2"},
        {"PLAIT_CPUS", "40-47,168-175"},
        {"PLAIT_JOBID", "1234.0"},
        {"PLAIT_SECRET", "00112233445566778899aabbccddeeff"},
        {"RANK", "13"},
        {"WORLD_SIZE", "16"},
        {"LOCAL_RANK", "5"},
        {"LOCAL_WORLD_SIZE", "8"},
        {"NODE_RANK", "1"},
        {"GROUP_RANK", "1"},
        {"MASTER_ADDR", "node7"},
        {"MASTER_PORT", "29512"}};
    enum { N = sizeof(want) / sizeof(want[0]) };
    struct plait_launch in = example();
    struct env env = {.n = 0};

    ok(plait_launch_encode(&in, 1, env_set, &env) == 0, "encodes");
    for (int i = 0; i < N; i++)
        is(&env, want[i][0], want[i][1]);
    ok(env.n == N, "%d variables and no more", (int)N);
    env.n = 0;
    ok(plait_launch_encode(&in, 0, env_set, &env) == 0 &&
           !env_get(&env, "RANK") && !env_get(&env, "MASTER_ADDR") &&
           !env_get(&env, "LOCAL_RANK") && env_get(&env, "PLAIT_RANK"),
       "without rendezvous only PLAIT_*");
}

static void test_decode(void)
{
    struct plait_launch in = example(), out;
    struct env env = {.n = 0};
    struct plait_error err;

    ok(plait_launch_decode(&out, env_get, &env, &err) == 0, "no plan");
    env_set(&env, "SLURM_PLAIT_PLAN", "none");
    ok(plait_launch_decode(&out, env_get, &env, &err) == 0,
       "a step that goes without");
    env.n = 0;
    env_set(&env, "SLURM_PLAIT_PLAN",
            "1/2.1.1.2.1/tp-cp-ep-dp-pp/linear/0/1*4");
    ok(plait_launch_decode(&out, env_get, &env, &err) == -1 &&
           strstr(err.text, "lacks Slurm's plait plugin"),
       "a plan and no seat: %s", err.text);
    env.n = 0;
    env_set(&env, "SLURM_PLAIT_FLAGS", "tp,dp");
    ok(plait_launch_decode(&out, env_get, &env, &err) == 0,
       "a job with flags, outside of its steps");
    env_set(&env, "SLURM_STEP_ID", "0");
    ok(plait_launch_decode(&out, env_get, &env, &err) == -1 &&
           strstr(err.text, "the flags tp,dp, but this step has no plan"),
       "a step of it that nothing planned: %s", err.text);
    env_set(&env, "SLURM_PLAIT_PLAN", "none");
    ok(plait_launch_decode(&out, env_get, &env, &err) == 0,
       "a step of it that goes without a plan");
    env.n = 0;
    plait_launch_encode(&in, 1, env_set, &env);
    memset(&out, 0xff, sizeof(out));
    ok(plait_launch_decode(&out, env_get, &env, &err) == 1 &&
           memcmp(&in, &out, sizeof(in)) == 0,
       "decode gives back what was encoded");
    in.gpu = -1;
    in.gpu_busid[0] = in.nics[0] = in.master_addr[0] = '\0';
    in.master_port = 0;
    memset(in.gpu_busid, 0, sizeof(in.gpu_busid));
    memset(in.nics, 0, sizeof(in.nics));
    memset(in.master_addr, 0, sizeof(in.master_addr));
    env.n = 0;
    plait_launch_encode(&in, 0, env_set, &env);
    ok(plait_launch_decode(&out, env_get, &env, &err) == 1 &&
           memcmp(&in, &out, sizeof(in)) == 0,
       "no GPU, no NIC, no rendezvous");
}

static void refuse(const char *name, const char *value, const char *want)
{
    struct plait_launch in = example(), out;
    struct plait_error err = {""};
    struct env env = {.n = 0};

    plait_launch_encode(&in, 1, env_set, &env);
    if (value)
        env_set(&env, name, value);
    else
        env_unset(&env, name);
    if (!ok(plait_launch_decode(&out, env_get, &env, &err) == -1 &&
                strcmp(err.text, want) == 0,
            "refuses: %s", want))
        diag("got: %s", err.text);
}

static void check_tasks(void)
{
    static const struct {
        const char *text;
        int node, tasks;
    } cases[] = {
        {"2(x4)", 0, 2},    {"2(x4)", 3, 2},     {"2(x4)", 4, -1},
        {"2(x2),1", 2, 1},  {"3,2(x2),1", 0, 3}, {"3,2(x2),1", 3, 1},
        {"12", 0, 12},      {"12", 1, -1},       {"", 0, -1},
        {"2(x0),3", 0, -1}, {"2(4)", 0, -1},     {"2x4", 0, -1},
        {"2(x4", 0, -1},    {"x", 0, -1},        {"2,", 1, -1},
        {"-2(x4)", 0, -1},  {"2(x4)3", 0, -1},   {"1,1,1,7", 3, 7},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ok(plait_hostlist_tasks(cases[i].text, cases[i].node) == cases[i].tasks,
           "tasks of node %d in %s: %d", cases[i].node, cases[i].text,
           cases[i].tasks);
}

int main(void)
{
    check_tasks();
    test_encode();
    test_decode();
    refuse("PLAIT_WORLD_SIZE", NULL,
           "PLAIT_WORLD_SIZE is not set, though PLAIT_RANK is");
    refuse("PLAIT_RANK", "x", "PLAIT_RANK=x must be a whole number >= 0");
    refuse("PLAIT_RANK", "", "PLAIT_RANK= must be a whole number >= 0");
    refuse("PLAIT_RANK", " 1", "PLAIT_RANK= 1 must be a whole number >= 0");
    refuse("PLAIT_RANK", "-1", "PLAIT_RANK=-1 must be a whole number >= 0");
    refuse("PLAIT_RANK", "99999999999999999999",
           "PLAIT_RANK=99999999999999999999 must be a whole number >= 0");
    refuse("PLAIT_RANK", "12",
           "PLAIT_RANK=12 has tp coordinate 0 in this layout, but the "
           "environment says 1");
    refuse("PLAIT_RANK", "4",
           "PLAIT_RANK=4 does not go with PLAIT_LOCAL_RANK=5 of 8 on node 1 "
           "of 2");
    refuse("PLAIT_LOCAL_RANK", "8",
           "rank 13 of 16, local rank 8 of 8, node rank 1 of 2: a rank must "
           "be less than its size");
    refuse("PLAIT_TP_SIZE", "3",
           "--tp=3 --ep=2 --dp=4 --pp=2 do not make 16 tasks; --tp=2 --ep=2 "
           "--dp=4 --pp=2 or --tp=4 --ep=2 --dp=2 --pp=2 would fit");
    refuse(
        "PLAIT_ORDER", "tp",
        "rank order \"tp\" must have each of tp, cp, ep, dp and pp once, as in "
        "tp-cp-ep-dp-pp");
    refuse("PLAIT_SECRET", "0123",
           "PLAIT_SECRET must be 32 to 64 hex digits, or none");
    refuse("PLAIT_SECRET", "00112233445566778899aabbccddeefG",
           "PLAIT_SECRET must be 32 to 64 hex digits, or none");
    refuse("MASTER_PORT", "70000", "MASTER_PORT=70000 must be from 1 to 65535");
    return done_testing();
}
