/* SPDX-License-Identifier: Apache-2.0 */
/* The shared library, used only through its public headers. */
#include <errno.h>
#include <plait/plait.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

static struct plait_layout *layout_of(int tp, int pp, int world)
{
    int size[PLAIT_NAXES] = {1, 1, 1, PLAIT_AUTO, 1};

    size[PLAIT_TP] = tp;
    size[PLAIT_PP] = pp;
    return plait_layout_create(size, NULL, world, NULL);
}

static void test_layout(void)
{
    struct plait_layout *l = layout_of(2, 2, 16);
    int at[PLAIT_NAXES] = {0}, members[4], bad = 0;
    struct plait_error err;
    char order[16];

    plait_layout_format_order(l, order);
    ok(l && plait_layout_world(l) == 16 &&
           plait_layout_size(l, PLAIT_DP) == 4 &&
           strcmp(order, "tp-cp-ep-dp-pp") == 0,
       "dp is inferred");
    for (int rank = 0; rank < 16; rank++) {
        for (int i = 0; i < PLAIT_NAXES; i++)
            at[i] = plait_layout_coordinate(l, rank, (enum plait_axis)i);
        bad += plait_layout_find_rank(l, at) != rank;
    }
    ok(!bad, "rank -> coordinates -> rank");
    ok(plait_layout_members(l, PLAIT_GROUP_DP, 3, members, 4) == 4 &&
           members[0] == 1 && members[1] == 3 && members[3] == 7,
       "the members of a group");
    members[1] = -7;
    ok(plait_layout_members(l, PLAIT_GROUP_DP, 3, members, 1) == 4 &&
           members[1] == -7,
       "no more than asked for are written");
    errno = 0;
    ok(plait_layout_coordinate(l, 16, PLAIT_TP) == -1 && errno == EINVAL &&
           plait_layout_size(l, PLAIT_NAXES) == -1 &&
           plait_layout_members(l, PLAIT_NGROUPS, 0, NULL, 0) == -1,
       "no such rank, axis, group");
    at[PLAIT_TP] = 2;
    ok(plait_layout_find_rank(l, at) == -1, "no such coordinate");
    at[PLAIT_TP] = 3;
    at[PLAIT_CP] = at[PLAIT_EP] = at[PLAIT_DP] = at[PLAIT_PP] = 1;
    ok(!plait_layout_create(at, NULL, 8, &err) && strstr(err.text, "8"),
       "sizes that do not fit: %s", err.text);
    ok(strcmp(plait_axis_name(PLAIT_EP), "ep") == 0 &&
           !plait_axis_name(PLAIT_NAXES),
       "the axes have names");
    plait_layout_destroy(l);
}

static void test_node(const char *fixtures)
{
    struct plait_error err = {""};
    struct plait_node *node =
        plait_node_create_synthetic("pack:2 numa:1 core:4 pu:2", &err);
    char path[4096];

    ok(node && plait_node_cores(node) == 8 && plait_node_pus(node) == 16 &&
           plait_node_numa_nodes(node) == 2 && plait_node_gpus(node) == 0,
       "a synthetic machine%s", err.text);
    ok(node && !plait_node_gpu_busid(node, 0) &&
           plait_node_gpu_numa(node, -1) == -1 &&
           plait_node_link(node, 0, 1) < 0 && !plait_node_nic_name(node, 0),
       "no such GPU, NIC");
    plait_node_destroy(node);
    snprintf(path, sizeof(path), "%s/one-of-everything.xml", fixtures);
    node = plait_node_create_xml(path, &err);
    ok(node && plait_node_gpus(node) > 0 && plait_node_nics(node) > 0 &&
           *plait_node_gpu_busid(node, 0) && *plait_node_nic_name(node, 0) &&
           plait_node_gpu_nics(node, 0) >= 0 &&
           plait_node_link(node, 0, 0) >= 0 &&
           plait_node_nic_bandwidth(node, 0) >= 0,
       "an hwloc XML%s", err.text);
    plait_node_destroy(node);
    ok(!plait_node_create_xml("/nonexistent", &err) && err.text[0],
       "a file that is not there: %s", err.text);
    node = plait_node_create(1, NULL);
    ok(node && plait_node_pus(node) > 0, "this machine");
    plait_node_destroy(node);
}

static const char blocks[] = "SwitchName=a Nodes=n[1-2]\n"
                             "SwitchName=b Nodes=n[3-4]\n"
                             "SwitchName=top Switches=a,b\n";

static void test_fabric(void)
{
    struct plait_fabric *fabric =
        plait_fabric_parse("blocks", blocks, sizeof(blocks) - 1, NULL);

    ok(fabric && plait_fabric_levels(fabric) == 2 &&
           plait_fabric_distance(fabric, "n1", "n2") == 1 &&
           plait_fabric_distance(fabric, "n1", "n3") == 2,
       "distances");
    ok(strcmp(plait_fabric_leaf_name(fabric, "n4"), "b") == 0 &&
           !plait_fabric_leaf_name(fabric, "n5"),
       "the leaf of a node");
    plait_fabric_destroy(fabric);
}

static void test_job(void)
{
    struct plait_layout *layout = layout_of(2, 2, 8);
    struct plait_job *job = plait_job_create(layout);
    struct plait_error err = {""};
    struct plait_job_plan *plan;
    int seen = 0;

    plait_layout_destroy(layout);
    ok(plait_job_add_nodes(job, "n[1-", 4, &err) < 0 && err.text[0],
       "no host list: %s", err.text);
    ok(plait_job_add_nodes(job, "n1", 0, &err) < 0, "no tasks: %s", err.text);
    ok(plait_job_set_gpu_type(job, "b52", &err) < 0 &&
           plait_job_set_gpu_type(job, "a100-80g", &err) == 0,
       "GPU types");
    ok(!plait_job_plan_create(job, &err), "a job without nodes: %s", err.text);
    ok(plait_job_add_nodes(job, "n1", 4, &err) == 0 &&
           plait_job_add_nodes(job, "n2", 4, &err) == 0,
       "nodes are appended");
    plan = plait_job_plan_create(job, &err);
    plait_job_destroy(job);
    ok(plan && plait_job_plan_tasks(plan) == 8, "a plan outlives its job");
    for (int i = 0; i < 8; i++)
        seen |= 1 << plait_job_plan_rank(plan, i);
    ok(seen == 0xff, "every rank has one task");
    ok(strcmp(plait_job_plan_node(plan, 5), "n2") == 0 &&
           plait_job_plan_local_rank(plan, 5) == 1 &&
           plait_job_plan_gpu(plan, 5) == 1 &&
           plait_job_plan_coordinate(plan, 5, PLAIT_TP) == 1 &&
           plait_job_plan_node_rank(plan, 5) >= 0,
       "a task");
    ok(!plait_job_plan_node(plan, 8) && plait_job_plan_rank(plan, -1) == -1 &&
           plait_job_plan_coordinate(plan, 0, PLAIT_NAXES) == -1,
       "no such task, axis");
    ok(plait_job_plan_seconds(plan, PLAIT_TP, PLAIT_PLACE_TOPOLOGY) > 0 &&
           plait_job_plan_seconds(plan, PLAIT_NAXES, PLAIT_PLACE_TOPOLOGY) <=
               plait_job_plan_seconds(plan, PLAIT_NAXES, PLAIT_PLACE_LINEAR),
       "a plan is never costlier than Slurm's order");
    plait_job_plan_destroy(plan);
}

/* A node in no switch is said, and the nodes stay in Slurm's order. */
static void test_missing_node(void)
{
    static const char text[] = "SwitchName=a Nodes=n1,n4\n"
                               "SwitchName=b Nodes=n2\n"
                               "SwitchName=c Switches=a,b\n";
    struct plait_layout *layout = layout_of(1, 2, 4);
    struct plait_job *job = plait_job_create(layout);
    struct plait_fabric *fabric =
        plait_fabric_parse("F", text, sizeof(text) - 1, NULL);
    struct plait_error err = {""};
    struct plait_job_plan *plan;
    int kept = 0;

    plait_layout_destroy(layout);
    plait_job_set_fabric(job, fabric);
    ok(plait_job_add_nodes(job, "n[1,2,4]", 1, &err) == 0, "nodes of switches");
    ok(plait_job_add_nodes(job, "n3", 1, &err) == 0, "and a node of none");
    plan = plait_job_plan_create(job, &err);
    for (int i = 0; plan && i < 4; i++)
        kept += plait_job_plan_node_rank(plan, i) == i;
    ok(plan && kept == 4, "a plan in Slurm's order%s", err.text);
    ok(plan && plait_job_plan_warning(plan) &&
           strcmp(plait_job_plan_warning(plan),
                  "no switch of the fabric has node n3; the nodes stay in "
                  "Slurm's order") == 0,
       "which says why");
    plait_job_plan_destroy(plan);
    plait_job_set_placement(job, PLAIT_PLACE_LINEAR);
    plan = plait_job_plan_create(job, &err);
    ok(plan && !plait_job_plan_warning(plan),
       "who wants that order is told nothing");
    plait_job_plan_destroy(plan);
    plait_job_destroy(job);
    plait_fabric_destroy(fabric);
}

static void test_estimate(void)
{
    const char *set[] = {"parallel.tp=2", "train.micro_batch=1"};
    struct plait_error err = {""};
    struct plait_job_config *config =
        plait_job_config_create(NULL, set, 2, &err);
    struct plait_layout *layout = layout_of(2, 1, 4);
    struct plait_job_estimate *own, *wide;
    double total = 0;

    own = plait_job_estimate_create(config, NULL, "h100", &err);
    wide = plait_job_estimate_create(config, layout, "h100", &err);
    ok(own && wide, "estimates%s", err.text);
    for (int i = PLAIT_MEMORY_WEIGHTS; i <= PLAIT_MEMORY_BUFFERS; i++)
        total += plait_job_estimate_figure(own, (enum plait_figure)i);
    ok(total > 0 && plait_job_estimate_figure(own, PLAIT_MEMORY_TOTAL) == total,
       "the memory adds up");
    ok(plait_job_estimate_figure(wide, PLAIT_STEP_SECONDS) <
           plait_job_estimate_figure(own, PLAIT_STEP_SECONDS),
       "more data-parallel ranks are faster");
    ok(plait_job_estimate_figure(own, PLAIT_NFIGURES) == -1, "no such figure");
    ok(!plait_job_estimate_create(config, NULL, "b52", &err),
       "no such GPU type: %s", err.text);
    plait_job_estimate_destroy(own);
    plait_job_estimate_destroy(wide);
    plait_layout_destroy(layout);
    plait_job_config_destroy(config);
}

static void set_variables(void)
{
    static const char *const variables[][2] = {
        {"PLAIT_RANK", "1"},       {"PLAIT_WORLD_SIZE", "2"},
        {"PLAIT_LOCAL_RANK", "1"}, {"PLAIT_LOCAL_WORLD_SIZE", "2"},
        {"PLAIT_NODE_RANK", "0"},  {"PLAIT_NNODES", "1"},
        {"PLAIT_TP_SIZE", "2"},    {"PLAIT_TP_RANK", "1"},
        {"PLAIT_CP_SIZE", "1"},    {"PLAIT_CP_RANK", "0"},
        {"PLAIT_EP_SIZE", "1"},    {"PLAIT_EP_RANK", "0"},
        {"PLAIT_DP_SIZE", "1"},    {"PLAIT_DP_RANK", "0"},
        {"PLAIT_PP_SIZE", "1"},    {"PLAIT_PP_RANK", "0"},
        {"PLAIT_GPU", "3"},        {"PLAIT_ORDER", "tp-cp-ep-dp-pp"},
        {"PLAIT_JOBID", "7.0"},    {"PLAIT_GPU_BUSID", "0000:07:00.0"},
    };

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        setenv(variables[i][0], variables[i][1], 1);
}

static void test_launch(void)
{
    struct plait_error err = {""};
    struct plait_launch *launch;

    errno = 0;
    ok(!plait_launch_create(&err) && errno == ENOENT, "no plan: %s", err.text);
    set_variables();
    err.text[0] = '\0';
    launch = plait_launch_create(&err);
    ok(launch && plait_launch_rank(launch) == 1 &&
           plait_launch_world_size(launch) == 2 &&
           plait_launch_local_rank(launch) == 1 &&
           plait_launch_local_world_size(launch) == 2 &&
           plait_launch_node_rank(launch) == 0 &&
           plait_launch_nodes(launch) == 1 &&
           plait_launch_coordinate(launch, PLAIT_TP) == 1 &&
           plait_layout_world(plait_launch_layout(launch)) == 2,
       "a rank%s", err.text);
    ok(launch && plait_launch_gpu(launch) == 3 &&
           strcmp(plait_launch_gpu_busid(launch), "0000:07:00.0") == 0 &&
           strcmp(plait_launch_jobid(launch), "7.0") == 0 &&
           !*plait_launch_nics(launch) && !*plait_launch_cpus(launch) &&
           !*plait_launch_master_addr(launch) &&
           !plait_launch_master_port(launch),
       "its GPU and job");
    ok(launch && plait_launch_coordinate(launch, PLAIT_NAXES) == -1,
       "no such axis");
    plait_launch_destroy(launch);
    setenv("PLAIT_TP_RANK", "0", 1);
    ok(!plait_launch_create(&err) && errno == EINVAL, "it contradicts: %s",
       err.text);
}

int main(void)
{
    const char *top = getenv("top_srcdir");
    char fixtures[3072];

    snprintf(fixtures, sizeof(fixtures), "%s/tests/fixtures/hwloc",
             top ? top : ".");
    test_layout();
    test_node(fixtures);
    test_fabric();
    test_job();
    test_missing_node();
    test_estimate();
    test_launch();
    return done_testing();
}
