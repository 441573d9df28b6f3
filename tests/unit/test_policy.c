/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/nccl/policy.h"
#include "tap.h"
#include "topology/predict/estimate_comms.h"

/* The NCCL settings of each group, which depend on its axis, domains and site.
 */

static const struct plait_site_network plain = {
    .traffic_class = {-1, -1, -1, -1, -1}};
static const struct plait_site_network able = {
    .sharp = true,
    .traffic_class = {[PLAIT_TP] = 1,
                      [PLAIT_CP] = 2,
                      [PLAIT_EP] = 3,
                      [PLAIT_DP] = 4,
                      [PLAIT_PP] = 5}};

static struct plait_group_policy choose(enum plait_comm_axis axis,
                                        bool one_node,
                                        const struct plait_site_network *n)
{
    const struct plait_group_site site = {.axis = axis,
                                          .known = n != NULL,
                                          .domains = one_node ? 1 : 2,
                                          .network = n};
    struct plait_group_policy p;

    plait_group_policy_choose(&site, &p);
    return p;
}

static void check_axes(void)
{
    struct plait_group_policy p = choose(PLAIT_COMM_AXIS_TP, true, &plain);

    ok(p.min_ctas > 0 && p.nvls_ctas > p.min_ctas && p.max_ctas == 0 &&
           !p.efficient && p.collnet == -1 && p.traffic_class == -1,
       "tp in a node or NVLink domain: more channels, the NVSwitches'");
    p = choose(PLAIT_COMM_AXIS_TP, false, &plain);
    ok(p.min_ctas == 0 && p.nvls_ctas == 0 && p.max_ctas == 0,
       "tp over nodes: NCCL's choice");
    p = choose(PLAIT_COMM_AXIS_DP, false, &plain);
    ok(p.max_ctas == 16 && p.efficient && p.collnet == -1,
       "dp leaves the backward its multiprocessors");
    p = choose(PLAIT_COMM_AXIS_PP, false, &plain);
    ok(p.max_ctas == 4 && p.channels_per_peer == 4, "pp: few, for messages");
    p = choose(PLAIT_COMM_AXIS_PP, true, &plain);
    ok(p.max_ctas == 16, "pp in a node: as many as NVLink needs");
    ok(p.room == choose(PLAIT_COMM_AXIS_PP, false, NULL).room && p.room == 16 &&
           choose(PLAIT_COMM_AXIS_TP, false, &plain).room ==
               choose(PLAIT_COMM_AXIS_TP, true, &plain).room,
       "products leave the same room wherever the ranks are");
    p = choose(PLAIT_COMM_AXIS_EP, false, &plain);
    ok(p.max_ctas == 0 && p.channels_per_peer == 4, "ep: many messages");
    p = choose(PLAIT_COMM_AXIS_NONE, false, NULL);
    ok(p.min_ctas == 0 && p.max_ctas == 0 && p.collnet == -1 &&
           p.traffic_class == -1,
       "the world: nothing");
}

/* The memory of communicators is predicted with the same channels. */
static void check_predicted(void)
{
    struct plait_group_policy p = choose(PLAIT_COMM_AXIS_DP, true, &plain);

    ok(p.max_ctas == PLAIT_LIMITED_CTAS &&
           choose(PLAIT_COMM_AXIS_DP, false, &plain).max_ctas ==
               PLAIT_LIMITED_CTAS &&
           choose(PLAIT_COMM_AXIS_EMBEDDING, false, &plain).max_ctas ==
               PLAIT_LIMITED_CTAS,
       "gradients: %d channels at most, as predicted", PLAIT_LIMITED_CTAS);
    p = choose(PLAIT_COMM_AXIS_PP, true, &plain);
    ok(p.max_ctas == PLAIT_LIMITED_CTAS, "messages in a node too");
    p = choose(PLAIT_COMM_AXIS_PP, false, &plain);
    ok(p.max_ctas == PLAIT_PEER_CTAS && p.channels_per_peer == PLAIT_PEER_CTAS,
       "messages between nodes: %d", PLAIT_PEER_CTAS);
    p = choose(PLAIT_COMM_AXIS_EP, false, &plain);
    ok(p.channels_per_peer == PLAIT_PEER_CTAS, "also those of experts");
    p = choose(PLAIT_COMM_AXIS_TP, true, &plain);
    ok(p.nvls_ctas == PLAIT_TENSOR_NVLS_CTAS && p.max_ctas == 0,
       "tp: %d of NVSwitches", PLAIT_TENSOR_NVLS_CTAS);
    p = choose(PLAIT_COMM_AXIS_TP, false, &plain);
    ok(p.nvls_ctas == 0, "and NCCL's choice beyond a domain");
}

static const char *const axis_name[] = {[PLAIT_COMM_AXIS_NONE] = "none",
                                        [PLAIT_COMM_AXIS_TP] = "tp",
                                        [PLAIT_COMM_AXIS_CP] = "cp",
                                        [PLAIT_COMM_AXIS_EP] = "ep",
                                        [PLAIT_COMM_AXIS_DP] = "dp",
                                        [PLAIT_COMM_AXIS_PP] = "pp",
                                        [PLAIT_COMM_AXIS_EMBEDDING] =
                                            "embedding"};

/* Windows: groups whose buffers have equal offsets on all ranks and are reduced
 * or gathered. */
static void check_windows(void)
{
    for (int i = 0; i <= PLAIT_COMM_AXIS_EMBEDDING; i++) {
        bool want = i == PLAIT_COMM_AXIS_TP || i == PLAIT_COMM_AXIS_DP;

        ok(choose(i, true, &plain).windows == want &&
               choose(i, false, NULL).windows == want,
           "%s: %s", axis_name[i], want ? "windows" : "none");
    }
}

static void check_site(void)
{
    static const struct {
        enum plait_comm_axis axis;
        bool one_node;
        int collnet, traffic_class;
    } groups[] = {
        {PLAIT_COMM_AXIS_TP, true, 0, 1},
        {PLAIT_COMM_AXIS_TP, false, 0, 1},
        {PLAIT_COMM_AXIS_CP, false, 0, 2},
        {PLAIT_COMM_AXIS_EP, false, 0, 3},
        {PLAIT_COMM_AXIS_DP, false, 1, 4},
        {PLAIT_COMM_AXIS_DP, true, 0, 4},
        {PLAIT_COMM_AXIS_EMBEDDING, false, 1, 4},
        {PLAIT_COMM_AXIS_PP, false, 0, 5},
        {PLAIT_COMM_AXIS_NONE, false, -1, -1},
    };

    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        struct plait_group_policy p =
            choose(groups[i].axis, groups[i].one_node, &able);

        ok(p.collnet == groups[i].collnet &&
               p.traffic_class == groups[i].traffic_class,
           "%s %s: SHARP %d, traffic class %d", axis_name[groups[i].axis],
           groups[i].one_node ? "in a node" : "over nodes", p.collnet,
           p.traffic_class);
    }
}

int main(void)
{
    check_axes();
    check_predicted();
    check_windows();
    check_site();
    return done_testing();
}
