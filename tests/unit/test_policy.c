/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/policy.h"
#include "tap.h"

/* What each group asks of NCCL, by its axis, its place and its site. */

static const struct plait_site_network plain = {
    .traffic_class = {-1, -1, -1, -1, -1}};
static const struct plait_site_network able = {
    .sharp = true,
    .traffic_class = {[PLAIT_TP] = 1,
                      [PLAIT_CP] = 2,
                      [PLAIT_EP] = 3,
                      [PLAIT_DP] = 4,
                      [PLAIT_PP] = 5}};

static struct plait_group_policy choose(const char *name, bool one_node,
                                        const struct plait_site_network *n)
{
    const struct plait_group_site site = {n != NULL, one_node, n};
    struct plait_group_policy p;

    plait_group_policy_choose(name, &site, &p);
    return p;
}

static void check_axes(void)
{
    struct plait_group_policy p = choose("tp", true, &plain);

    ok(p.min_ctas > 0 && p.nvls_ctas > p.min_ctas && p.max_ctas == 0 &&
           !p.efficient && p.collnet == -1 && p.traffic_class == -1,
       "tp in a node: more channels, the NVSwitches'");
    p = choose("tp", false, &plain);
    ok(p.min_ctas == 0 && p.nvls_ctas == 0 && p.max_ctas == 0,
       "tp over nodes: NCCL's choice");
    p = choose("dp-cp", false, &plain);
    ok(p.max_ctas == 16 && p.efficient && p.collnet == -1,
       "dp leaves the backward its multiprocessors");
    p = choose("pp", false, &plain);
    ok(p.max_ctas == 4 && p.channels_per_peer == 4, "pp: few, for messages");
    p = choose("ep", false, &plain);
    ok(p.max_ctas == 0 && p.channels_per_peer == 4, "ep: many messages");
    p = choose("world", false, NULL);
    ok(p.min_ctas == 0 && p.max_ctas == 0 && p.collnet == -1 &&
           p.traffic_class == -1,
       "the world: nothing");
}

/* What lies alike on all ranks of a group, and is summed or gathered. */
static void check_windows(void)
{
    static const char *const with[] = {
        "tp", "dp", "dp-cp", "expert-dp", "dp-cp-inside", "expert-dp-across"};
    static const char *const without[] = {"cp",        "ep",    "pp",
                                          "embedding", "tp-pp", "world"};

    for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++)
        ok(choose(with[i], true, &plain).windows &&
               choose(with[i], false, NULL).windows,
           "%s: windows", with[i]);
    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++)
        ok(!choose(without[i], true, &plain).windows, "%s: none", without[i]);
}

static void check_site(void)
{
    static const struct {
        const char *name;
        bool one_node;
        int collnet, traffic_class;
    } groups[] = {
        {"tp", true, 0, 1},         {"tp", false, 0, 1},
        {"cp", false, 0, 2},        {"ep", false, 0, 3},
        {"dp", false, 1, 4},        {"dp-cp", false, 1, 4},
        {"dp-cp", true, 0, 4},      {"dp-cp-across", false, 1, 4},
        {"expert-dp", false, 1, 4}, {"dp-cp-inside", true, 0, 4},
        {"embedding", false, 1, 4}, {"pp", false, 0, 5},
        {"tp-pp", false, -1, -1},
    };

    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        struct plait_group_policy p =
            choose(groups[i].name, groups[i].one_node, &able);

        ok(p.collnet == groups[i].collnet &&
               p.traffic_class == groups[i].traffic_class,
           "%s %s: SHARP %d, traffic class %d", groups[i].name,
           groups[i].one_node ? "in a node" : "over nodes", p.collnet,
           p.traffic_class);
    }
}

int main(void)
{
    check_axes();
    check_windows();
    check_site();
    return done_testing();
}
