/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a cluster's topologies is taken, and what its switches are
 * called. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"
#include "temp_path.h"
#include "topology/fabric/fabric.h"
#include "topology/start/scontrol.h"

static struct plait_fabric *parse(const char *text)
{
    struct plait_error err = {""};
    struct plait_fabric *f = plait_fabric_parse("F", text, strlen(text), &err);

    if (!f)
        diag("%s", err.text);
    return f;
}

static const char *leaf_name(const struct plait_fabric *f, const char *node)
{
    int leaf = plait_fabric_leaf(f, node);

    return leaf < 0 ? NULL : plait_fabric_switch_name(f, leaf);
}

/* What people call the switches: not their GUIDs, unless two have one name. */
static void test_switch_names(void)
{
    struct plait_fabric *f =
        parse("vendid=0x2c9\n"
              "Switch 36 \"S-1\" # \"MF0;leaf1:MQM8700/U1\" port 0\n"
              "[1] \"H-1\"[1](1) # \"n1 mlx5_0\" lid 4 4xHDR\n"
              "Switch 36 \"S-2\" # \"leaf 2\" port 0\n"
              "[1] \"H-2\"[1](1) # \"n2 mlx5_0\" lid 4 4xHDR\n"
              "Switch 36 \"S-3\" # \"MF0;core:CS7500/L1/U1\" port 0\n"
              "[1] \"H-3\"[1](1) # \"n3 mlx5_0\" lid 4 4xHDR\n"
              "Switch 36 \"S-4\" # \"MF0;core:CS7500/L2/U1\" port 0\n"
              "[1] \"H-4\"[1](1) # \"n4 mlx5_0\" lid 4 4xHDR\n"
              "Switch 36 \"S-5\" # \"Quantum switch\" port 0\n"
              "[1] \"H-5\"[1](1) # \"n5 mlx5_0\" lid 4 4xHDR\n"
              "Switch 36 \"S-6\" # \"Quantum switch\" port 0\n"
              "[1] \"H-6\"[1](1) # \"n6 mlx5_0\" lid 4 4xHDR\n"
              "Switch 36 \"S-7\"\n"
              "[1] \"H-7\"[1](1) # \"n7 mlx5_0\" lid 4 4xHDR\n");
    static const char *const want[] = {"leaf1",
                                       "leaf 2",
                                       "MF0;core:CS7500/L1/U1",
                                       "MF0;core:CS7500/L2/U1",
                                       "Quantum switch (S-5)",
                                       "Quantum switch (S-6)",
                                       "S-7"};

    for (int i = 0; f && i < 7; i++) {
        char node[8];
        const char *got;

        snprintf(node, sizeof(node), "n%d", i + 1);
        got = leaf_name(f, node);
        if (!ok(got && strcmp(got, want[i]) == 0, "a switch is %s", want[i]))
            diag("got %s", got ? got : "none");
    }
    ok(f != NULL, "ibnetdiscover's text is read");
    plait_fabric_destroy(f);
}

static const char several[] =
    "- {topology: none, cluster_default: true, flat: true}\n"
    "- {topology: ring, ring: {rings: []}}\n"
    "- topology: cpu\n"
    "  tree: {switches: [{switch: s1, nodes: 'c[1-8]'}]}\n"
    "- topology: gpu\n"
    "  tree:\n"
    "    switches:\n"
    "      - {switch: top, children: 'g[1-2]'}\n"
    "      - {switch: g1, nodes: 'n[1-2]'}\n"
    "      - {switch: g2, nodes: 'n[3-4]'}\n";

/* The topology that is taken for the first of these nodes, or the error. */
static void takes(const char *name, const char *const *nodes, int n,
                  const char *want)
{
    char path[TEMP_PATH], got[256];
    int fd = mkstemp(temp_path(path, "fabric"));
    struct plait_error err = {""};
    struct plait_fabric *f = NULL;

    if (fd >= 0 && write(fd, several, strlen(several)) > 0)
        f = plait_fabric_create_for(path, name, nodes, n, &err);
    if (f)
        snprintf(got, sizeof(got), "%s", plait_fabric_topology(f));
    else
        snprintf(got, sizeof(got), "%.200s",
                 strchr(err.text, ' ') ? strchr(err.text, ' ') + 1 : err.text);
    if (!ok(strcmp(got, want) == 0, "%s of %s: %s", name ? name : "any",
            nodes[0], want))
        diag("got %s", got);
    plait_fabric_destroy(f);
    close(fd);
    unlink(path);
}

static void test_topologies(void)
{
    static const char *const gpus[] = {"n1", "n4"}, *const cpus[] = {"c8"},
                             *const mixed[] = {"n1", "c1"};

    takes(NULL, gpus, 2, "gpu");
    takes(NULL, cpus, 1, "cpu");
    takes(NULL, mixed, 2, "none");
    takes("cpu", gpus, 2, "cpu");
    takes("gpu", cpus, 1, "gpu");
    takes("ring", cpus, 1, "a torus or ring has no switches to plan by");
    takes("fpga", cpus, 1,
          "there is no topology \"fpga\"; there are none, ring, cpu, gpu");
}

/* Partitions with a topology of their own, which Slurm has since 25.05. */
static void test_partitions(void)
{
    static const char text[] =
        "PartitionName=cpu Default=YES AllowNodes=ALL Topology=tree1\n"
        "PartitionName=gpu Default=NO Topology=blocks MaxTime=1\n"
        "PartitionName=gpu2 Default=NO NoTopology=x State=UP\n"
        "PartitionName=old Topology=(null) State=UP\n";
    static const struct {
        const char *partition, *want;
    } cases[] = {{NULL, "tree1"}, {"cpu", "tree1"}, {"gpu", "blocks"},
                 {"gpu2", ""},    {"old", ""},      {"gp", ""}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *partition = cases[i].partition;
        char name[64] = "?";

        plait_scontrol_parse_partition(text, partition, name, sizeof(name));
        if (!ok(strcmp(name, cases[i].want) == 0, "topology of %s: \"%s\"",
                partition ? partition : "the default partition", cases[i].want))
            diag("got \"%s\"", name);
    }
}

/* Nodes that no switch has: cloud and dynamic ones. */
static void test_lacks(void)
{
    static const char *const nodes[] = {"n1", "cloud7", "n2", "cloud8"};
    struct plait_fabric *f = parse("SwitchName=s0 Nodes=n[1-2]\n");

    ok(f && plait_fabric_lacks(f, nodes, 4) == 1, "the first such is found");
    ok(f && plait_fabric_lacks(f, nodes, 1) == -1, "none is missing");
    plait_fabric_destroy(f);
    f = plait_fabric_create_flat();
    ok(f && plait_fabric_lacks(f, nodes, 4) == -1, "a flat fabric lacks none");
    plait_fabric_destroy(f);
}

int main(void)
{
    test_switch_names();
    test_topologies();
    test_partitions();
    test_lacks();
    return done_testing();
}
