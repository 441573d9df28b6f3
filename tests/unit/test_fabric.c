/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "topology/base/hostlist.h"
#include "topology/fabric/fabric.h"

static struct plait_fabric *parse(const char *text)
{
    struct plait_error err = {""};
    struct plait_fabric *f = plait_fabric_parse("F", text, strlen(text), &err);

    if (!f)
        diag("%s", err.text);
    return f;
}

static void distance(const struct plait_fabric *f, const char *a, const char *b,
                     int want)
{
    int got = f ? plait_fabric_distance(f, a, b) : -1;

    if (!ok(got == want, "%s to %s: %d", a, b, want))
        diag("got %d", got);
}

static void refuse(const char *text, const char *want)
{
    struct plait_error err = {""};
    struct plait_fabric *f = plait_fabric_parse("F", text, strlen(text), &err);

    if (!ok(!f && strcmp(err.text, want) == 0, "refuses: %s", want))
        diag("got: %s", f ? "(accepted)" : err.text);
    plait_fabric_destroy(f);
}

static void test_tree(void)
{
    struct plait_fabric *f =
        parse("# two leaves\n"
              "SwitchName=s2 Switches=s[0-1]\n"
              "switchname=s0 nodes=n[1-4,7] LinkSpeed=100\n"
              "SwitchName=s1 \\\n Nodes=n5,n6,m[01-02]a[0-1] # more\n"
              "SwitchName=s3 Nodes=\\ # two lines\n"
              "x\n");

    ok(f && plait_fabric_levels(f) == 2, "two levels");
    distance(f, "n1", "n1", 0);
    distance(f, "n1", "n7", 1);
    distance(f, "n1", "n5", 2);
    distance(f, "m01a0", "m02a1", 1);
    distance(f, "m01a0", "n4", 2);
    distance(f, "n1", "x", 3);
    distance(f, "n1", "nowhere", 3);
    ok(f && plait_fabric_leaf(f, "m1a0") == -1, "leading zeros count");
    plait_fabric_destroy(f);

    f = plait_fabric_create_flat();
    ok(plait_fabric_levels(f) == 0, "flat has no levels");
    distance(f, "a", "a", 0);
    distance(f, "a", "b", 1);
    plait_fabric_destroy(f);
    f = parse("No topology information available\n");
    ok(f && plait_fabric_levels(f) == 0, "scontrol without a topology");
    plait_fabric_destroy(f);
    f = parse("# nothing\n\n");
    ok(f && plait_fabric_levels(f) == 0, "an empty file is flat");
    plait_fabric_destroy(f);
}

/* A fat tree where every leaf reaches every spine, and nodes on two rails */
static void test_several_parents(void)
{
    struct plait_fabric *f = parse("SwitchName=l0 Nodes=a,b\n"
                                   "SwitchName=l1 Nodes=c\n"
                                   "SwitchName=l2 Nodes=d\n"
                                   "SwitchName=p0 Switches=l[0-1]\n"
                                   "SwitchName=p1 Switches=l[1-2]\n"
                                   "SwitchName=r0 Nodes=a,b\n");

    ok(f && plait_fabric_levels(f) == 2, "spines count as one");
    distance(f, "a", "d", 2);
    distance(f, "a", "b", 1);
    plait_fabric_destroy(f);
}

static void test_scontrol(void)
{
    struct plait_fabric *f =
        parse("SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
              "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
              "SwitchName=s2 Level=1 LinkSpeed=1 Nodes=n[1-4] "
              "Switches=s[0-1]\n");

    distance(f, "n1", "n2", 1);
    distance(f, "n2", "n3", 2);
    ok(f && plait_fabric_leaf(f, "n3") == 1, "n3 hangs from s1");
    plait_fabric_destroy(f);
    f = parse("BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4\n"
              "BlockName=b2 BlockIndex=1 Nodes=n[5-8] BlockSize=4\n"
              "BlockName=b3 BlockIndex=2 Nodes=n[9-12] BlockSize=4\n"
              "BlockName=b4 BlockIndex=3 Nodes=n[13-16] BlockSize=4\n"
              "AggregatedBlock=b[1-2] BlockIndex=4 Nodes=n[1-8] "
              "BlockSize=8\n"
              "AggregatedBlock=b[3-4] BlockIndex=5 Nodes=n[9-16] "
              "BlockSize=8\n"
              "AggregatedBlock=b[1-4] BlockIndex=6 Nodes=n[1-16] "
              "BlockSize=16\n");
    distance(f, "n1", "n4", 1);
    distance(f, "n1", "n5", 2);
    distance(f, "n1", "n9", 3);
    ok(f && plait_fabric_has_blocks(f), "blocks");
    plait_fabric_destroy(f);
}

static void test_blocks(void)
{
    struct plait_fabric *f = parse("BlockName=b1 Nodes=n[1-4]\n"
                                   "BlockName=b2 Nodes=n[5-8]\n"
                                   "BlockName=b3 Nodes=n[9-12]\n"
                                   "BlockName=b4 Nodes=n[13-16]\n"
                                   "BlockSizes=4,8,16\n");

    distance(f, "n1", "n4", 1);
    distance(f, "n1", "n5", 2);
    distance(f, "n9", "n16", 2);
    distance(f, "n1", "n16", 3);
    ok(f && plait_fabric_levels(f) == 3, "three levels");
    plait_fabric_destroy(f);
}

static void test_addresses(void)
{
    struct plait_fabric *f = parse("s2.s0.n1 switch.switch.node\n"
                                   "s2.s0.n2 switch.switch.node\n"
                                   "s2.s1.n3 switch.switch.node\n");

    distance(f, "n1", "n2", 1);
    distance(f, "n1", "n3", 2);
    plait_fabric_destroy(f);
    f = parse("b8.tux1 block.node\nb8.tux2 block.node\nb9.tux3 block.node\n");
    distance(f, "tux1", "tux2", 1);
    distance(f, "tux1", "tux3", 2);
    ok(f && plait_fabric_has_blocks(f), "blocks from addresses");
    plait_fabric_destroy(f);
    f = parse("n1 node\nn2 node\n");
    distance(f, "n1", "n2", 1);
    plait_fabric_destroy(f);
    refuse("s0.n1 switch.switch.node\n",
           "F:1: the address and its pattern differ in length");
    refuse("s0.n1 switch.node\ns0.n2\n",
           "F:2: expected an address and its pattern");
    refuse("s0.s0.n1 switch.switch.node\n", "F:1: switch s0 is below itself");
}

static void test_yaml(void)
{
    struct plait_fabric *f = parse("---\n"
                                   "- topology: one\n"
                                   "  cluster_default: false\n"
                                   "  flat: true\n"
                                   "- topology: two\n"
                                   "  cluster_default: true\n"
                                   "  tree:\n"
                                   "    switches:\n"
                                   "      - switch: root\n"
                                   "        children: s[1-2]\n"
                                   "      - switch: s1\n"
                                   "        nodes: n[1-2]\n"
                                   "      - switch: s2\n"
                                   "        nodes: n[3-4]\n");

    distance(f, "n1", "n2", 1);
    distance(f, "n1", "n4", 2);
    plait_fabric_destroy(f);
    f = parse("- topology: b\n"
              "  block:\n"
              "    block_sizes: [2, 4]\n"
              "    blocks:\n"
              "      - {block: b1, nodes: 'n[1-2]'}\n"
              "      - {block: b2, nodes: 'n[3-4]'}\n"
              "      - {block: b3, nodes: 'n[5-6]'}\n"
              "      - {block: b4, nodes: 'n[7-8]'}\n");
    distance(f, "n1", "n3", 2);
    distance(f, "n1", "n5", 3);
    ok(f && plait_fabric_has_blocks(f), "blocks in YAML");
    plait_fabric_destroy(f);
    f = parse("%YAML 1.1\n---\n"
              "-   cluster_default: true\n"
              "    tree:\n"
              "        switches:\n"
              "        -   nodes: n[1-2]\n"
              "            switch: s1\n"
              "    topology: sorted\n");
    distance(f, "n1", "n2", 1);
    plait_fabric_destroy(f);
    f = parse("- flat: true\n  topology: none\n");
    ok(f && plait_fabric_levels(f) == 0, "whatever key comes first");
    plait_fabric_destroy(f);
    refuse("- topology: a\n  torus3d: {}\n",
           "F:1: a torus or ring has no switches to plan by");
    refuse("- topology: a\n  ring: {}\n",
           "F:1: a torus or ring has no switches to plan by");
    refuse("- topology: a\n  hypercube: {}\n",
           "F:1: expected a topology of type tree, block or flat");
    refuse("- topology: a\n  tree:\n    switches:\n"
           "      - switch: s1\n        children: s2\n",
           "F:5: switch s2 is not defined");
    refuse("- topology: a\n  tree:\n    switches:\n      - switch: s1\n",
           "F:4: neither children nor nodes");
}

/* Two leaves and two spines, hosts with two adapters each, a management
 * host on a spine, and a switch's own aggregation node */
static void test_ibnetdiscover(void)
{
    static const char text[] =
        "#\n# Topology file: generated on Sat Nov 21 2026\n#\n"
        "vendid=0x2c9\ndevid=0xd2f0\nswitchguid=0xa1(a1)\n"
        "Switch\t41 \"S-a1\"\t# \"MF0;leaf1:MQM8700/U1\" enhanced port 0\n"
        "[1]\t\"H-01\"[1](11)\t# \"node1 mlx5_0\" lid 4 4xHDR\n"
        "[2]\t\"H-02\"[1](12)\t# \"node2 mlx5_0\" lid 5 4xHDR\n"
        "[3]\t\"H-aa\"[1](13)\t# \"Mellanox Technologies Aggregation "
        "Node\"\n"
        "[21]\t\"S-b1\"[1]\t# \"spine1\" lid 9 4xHDR\n"
        "[22]\t\"S-b2\"[1]\t# \"spine2\" lid 10 4xHDR\n"
        "\nvendid=0x2c9\nswitchguid=0xa2(a2)\n"
        "Switch\t41 \"S-a2\"\t# \"leaf2\" enhanced port 0\n"
        "[1]\t\"H-03\"[1](21)\t# \"node3 mlx5_0\" lid 6 4xHDR\n"
        "[2]\t\"H-04\"[1](22)\t# \"node4 mlx5_0\" lid 7 4xHDR\n"
        "[21]\t\"S-b1\"[2]\t# \"spine1\" lid 9 4xHDR\n"
        "[22]\t\"S-b2\"[2]\t# \"spine2\" lid 10 4xHDR\n"
        "\nSwitch\t41 \"S-b1\"\t# \"spine1\" enhanced port 0\n"
        "[1]\t\"S-a1\"[21]\t# \"leaf1\" lid 1 4xHDR\n"
        "[2]\t\"S-a2\"[21]\t# \"leaf2\" lid 2 4xHDR\n"
        "[40]\t\"H-99\"[1](99)\t# \"manager mlx5_0\" lid 3 4xHDR\n"
        "\nSwitch\t41 \"S-b2\"\t# \"spine2\" enhanced port 0\n"
        "[1]\t\"S-a1\"[22]\t# \"leaf1\" lid 1 4xHDR\n"
        "[2]\t\"S-a2\"[22]\t# \"leaf2\" lid 2 4xHDR\n"
        "\ncaguid=0x1\nCa\t1 \"H-01\"\t# \"node1 mlx5_0\"\n"
        "[1](11)\t\"S-a1\"[1]\t# lid 4 lmc 0 \"leaf1\" lid 1 4xHDR\n";
    struct plait_fabric *f = parse(text);

    ok(f && plait_fabric_levels(f) == 2, "leaves and spines");
    distance(f, "node1", "node2", 1);
    distance(f, "node1", "node3", 2);
    distance(f, "node1", "manager", 2);
    ok(f && plait_fabric_leaf(f, "Mellanox") < 0, "no aggregation node");
    plait_fabric_destroy(f);
    refuse("vendid=0x2c9\nSwitch 36 x\n",
           "F:2: expected a switch such as Switch 36 \"S-0002c902\"");
    refuse("vendid=0x2c9\nSwitch 36 \"S-1\"\n[1] x\n",
           "F:3: expected a port such as [1] \"H-0002c903000e0a72\"[1]");
    refuse("vendid=0x2c9\nSwitch 36 \"S-1\"\n",
           "F: it contains no switch with a host");
}

static struct plait_fabric *corpus(const char *dir, const char *name)
{
    struct plait_error err = {""};
    struct plait_fabric *f;
    char path[1024];

    snprintf(path, sizeof(path), "%s/fabric/%s", dir, name);
    f = plait_fabric_create(path, &err);
    if (!ok(f != NULL, "reads %s", name))
        diag("%s", err.text);
    return f;
}

/* Recorded fabrics; the distances were read off the files by a person. */
static void test_corpus(const char *dir)
{
    struct plait_fabric *f;

    f = corpus(dir, "azure-cyclecloud-slurm_topology.txt");
    distance(f, "hpcbench-hpc-36", "hpcbench-hpc-42", 1);
    distance(f, "hpcbench-hpc-36", "hpcbench-hpc-1", 2);
    plait_fabric_destroy(f);
    f = corpus(dir, "topograph-expected.slinky-dra-block.conf");
    distance(f, "srv1101", "srv1108", 1);
    distance(f, "srv1101", "srv1201", 2);
    distance(f, "srv1101", "srv2101", 3);
    distance(f, "srv1101", "srv3101", 4);
    plait_fabric_destroy(f);
    f = corpus(dir, "topograph-expected.slinky-oci-sim-tree.conf");
    ok(f && plait_fabric_levels(f) == 3, "three levels");
    distance(f, "srv1101", "srv1108", 1);
    distance(f, "srv1101", "srv1208", 2);
    distance(f, "srv1101", "srv6208", 3);
    plait_fabric_destroy(f);
    f = corpus(dir, "topograph-model-medium.yaml");
    distance(f, "1101", "1102", 1);
    distance(f, "1101", "1202", 2);
    distance(f, "1101", "1301", 3);
    plait_fabric_destroy(f);
    f = corpus(dir, "topograph-model-small-tree.yaml");
    distance(f, "I21", "I25", 1);
    distance(f, "I21", "I36", 2);
    plait_fabric_destroy(f);
}

static void test_broken(void)
{
    refuse("SwitchName=s0 Nodes=n[1-\n",
           "F:1: Nodes: \"[1-\" lacks a closing bracket");
    refuse("\n# x\nSwitchName=s0 Nodes=n[4-1]\n",
           "F:3: Nodes: \"4-1\" is not a range such as 1-4");
    refuse("SwitchName=s0 Nodes=n]\n",
           "F:1: Nodes: \"n]\" lacks an opening bracket");
    refuse("SwitchName=s0 Nodes=a,,b\n", "F:1: Nodes: an empty name");
    refuse("SwitchName=s0 Nodes=n[0-999999999]\n",
           "F:1: Nodes: more than 1048576 names");
    refuse("SwitchName=s0 Nodes\n", "F:1: \"Nodes\" is not a Key=Value pair");
    refuse("SwitchName=s0 Node=a\n",
           "F:1: unknown key \"Node\"; expected SwitchName, Switches, Nodes, "
           "LinkSpeed, BlockName or BlockSizes");
    refuse("TorusName=pod1 Dims=4x4x2 Nodes=n[1-32]\n",
           "F:1: a torus or ring has no switches to plan by");
    refuse("RingName=r0 Nodes=n[1-32]\n",
           "F:1: a torus or ring has no switches to plan by");
    refuse("SwitchName=s0 Nodes=\n", "F:1: Nodes is empty");
    refuse("SwitchName=s0 Nodes=a Nodes=b\n", "F:1: Nodes is given twice");
    refuse("SwitchName=s0\n", "F:1: neither Nodes nor Switches");
    refuse("Nodes=a\n",
           "F:1: expected one of SwitchName, BlockName and BlockSizes");
    refuse("SwitchName=s0 Nodes=a\nSwitchName=s0 Nodes=b\n",
           "F:2: switch s0 is defined twice");
    refuse("SwitchName=s0 Nodes=a\nSwitchName=s1 Switches=s0,s9\n",
           "F:2: switch s9 is not defined");
    refuse("SwitchName=s0 Switches=s0\n", "F:1: switch s0 is below itself");
    refuse("SwitchName=a Switches=b\nSwitchName=b Switches=a\n",
           "F: switch b is below itself");
    refuse("SwitchName=a Switches=b\nSwitchName=b Switches=a\n"
           "AggregatedBlock=a\n",
           "F: switch b is below itself");
    refuse("BlockName=b1 Nodes=a,b\nBlockName=b2 Nodes=b\n",
           "F:2: node b is in two blocks");
    refuse("BlockName=b1 Nodes=a\nSwitchName=s Nodes=b\n",
           "F:2: SwitchName and BlockName in one file; Slurm uses either "
           "topology/tree or topology/block");
    refuse(
        "BlockName=b1 Nodes=a\nBlockSizes=4,9\n",
        "F:2: BlockSizes=4,9: expected a base size and then growing powers of "
        "two of it, as in 4,8,16");
    refuse("hello world\n",
           "F:1: expected a pattern such as switch.switch.node "
           "or block.node");
    refuse("hello\n", "F:1: \"hello\" is not a Key=Value pair");
}

static void test_names(void)
{
    struct plait_error err = {""};
    char node[] = "SwitchName=s Nodes=a\033M\n", many[] = "a[1-2],b\033";
    int n = 0;

    refuse(node, "F:1: Nodes: a?M: a name cannot have such characters");
    refuse("SwitchName=s\xe2\x80\xae Nodes=a\n",
           "s?: a name cannot have such characters");
    ok(!plait_hostlist_create(many, &n, &err) &&
           strcmp(err.text, "b?: a name cannot have such characters") == 0,
       "a list of hosts: %s", err.text);
}

int main(void)
{
    const char *dir = getenv("TOPOLOGY_CORPUS");

    test_tree();
    test_names();
    test_several_parents();
    test_scontrol();
    test_blocks();
    test_addresses();
    test_broken();
    test_yaml();
    test_ibnetdiscover();
    if (dir && *dir)
        test_corpus(dir);
    else
        skip("no corpus of recorded fabrics");
    return done_testing();
}
