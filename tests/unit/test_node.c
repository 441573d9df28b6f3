/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"
#include "topology/node/node.h"

/* Invented machines; test_corpus.c has recorded ones. */

static char *fixture(const char *name)
{
    static char path[4096];
    const char *top = getenv("top_srcdir");

    snprintf(path, sizeof(path), "%s/tests/fixtures/%s", top ? top : ".", name);
    return path;
}

static void test_one_of_everything(void)
{
    struct plait_error err = {""};
    struct plait_node *node =
        plait_node_create_xml(fixture("hwloc/one-of-everything.xml"), &err);

    ok(node != NULL, "an hwloc XML reads: %s", err.text);
    if (!node)
        return;
    ok(node->ngpus == 4, "virtual functions and VGA chips are no GPUs");
    ok(node->nnics == 2, "an HCA and an EFA, but not the board's Ethernet");
    ok(strcmp(node->gpus[0].busid, "0000:05:00.0") == 0 &&
           strcmp(node->gpus[1].busid, "0000:06:00.0") == 0 &&
           strcmp(node->gpus[2].busid, "0000:81:00.0") == 0 &&
           strcmp(node->gpus[3].busid, "0000:91:00.0") == 0,
       "in bus order");
    ok(strcmp(node->gpus[0].model, "NVIDIA A100-SXM4-80GB") == 0 &&
           strcmp(node->gpus[2].vendor, "amd") == 0 &&
           strcmp(node->gpus[2].model, "Instinct MI210") == 0 &&
           strcmp(node->gpus[3].vendor, "nvidia") == 0,
       "several types in one node");
    ok(node->links[1] == 300 && node->links[4] == 300 && node->links[2] == 0,
       "12 links through two switch ports are 300 GB/s");
    ok(node->nislands == 3 && node->gpus[0].island == node->gpus[1].island &&
           node->gpus[2].island != node->gpus[3].island,
       "islands");
    ok(node->gpu_gpu[1] == PLAIT_DIST_PIX &&
           node->gpu_gpu[2] == PLAIT_DIST_SYS &&
           node->gpu_gpu[2 * 4 + 3] == PLAIT_DIST_NODE &&
           node->gpu_gpu[0] == PLAIT_DIST_SELF,
       "PIX, NODE, SYS");
    ok(node->gpu_nic[0] == PLAIT_DIST_PIX && node->gpu_nic[1] == PLAIT_DIST_SYS,
       "distances to NICs");
    ok(node->gpus[0].nnics == 1 &&
           strcmp(node->nics[node->gpus[0].nics[0]].name, "mlx5_0") == 0 &&
           strcmp(node->nics[node->gpus[3].nics[0]].name, "eth2") == 0,
       "each GPU has the NIC nearest to it");
    ok(node->numa_nodes == 2 && node->cores == 4 && node->pus == 4, "cores");
    plait_node_destroy(node);
}

static void test_no_pci(void)
{
    struct plait_node *node =
        plait_node_create_xml(fixture("hwloc/no-pci.xml"), NULL);

    ok(node && node->ngpus == 2 && node->gpus[1].busid[0] == '\0' &&
           strcmp(node->gpus[1].vendor, "nvidia") == 0 &&
           node->gpus[1].numa == 0,
       "two libraries that list the same GPUs count once");
    plait_node_destroy(node);
}

/* Four GPUs and `nnics` NICs behind one switch. */
static struct plait_node *one_switch(int nnics)
{
    char text[4096];
    int n, i;

    n = snprintf(text, sizeof(text),
                 "<system version=\"1\"><cpu numaid=\"0\">"
                 "<pci busid=\"0000:01:00.0\" class=\"0x060400\">");
    for (i = 0; i < 4; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n,
                      "<pci busid=\"0000:%02x:00.0\" class=\"0x030200\"/>",
                      0x10 + i);
    for (i = 0; i < nnics; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n,
                      "<pci busid=\"0000:%02x:00.0\" class=\"0x020700\"><nic>"
                      "<net name=\"ib%d\" speed=\"400000\"/></nic></pci>",
                      0x20 + i, i);
    n += snprintf(text + n, sizeof(text) - (size_t)n, "</pci></cpu></system>");
    return plait_node_parse_nccl("text", text, (size_t)n, NULL);
}

static void test_nic_balance(void)
{
    static const struct {
        int nnics;
        int count[4], first[4];
    } cases[] = {
        {1, {1, 1, 1, 1}, {0, 0, 0, 0}}, {2, {1, 1, 1, 1}, {0, 0, 1, 1}},
        {4, {1, 1, 1, 1}, {0, 1, 2, 3}}, {8, {2, 2, 2, 2}, {0, 2, 4, 6}},
        {6, {1, 2, 1, 2}, {0, 1, 3, 4}},
    };
    size_t i;
    int g;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plait_node *node = one_switch(cases[i].nnics);
        int good = node != NULL;

        for (g = 0; good && g < 4; g++)
            good = node->gpus[g].nnics == cases[i].count[g] &&
                   node->gpus[g].nics[0] == cases[i].first[g];
        ok(good, "4 GPUs divide %d NICs", cases[i].nnics);
        ok(good && node->nics[0].gbps == 50, "400 Gbit/s are 50 GB/s");
        plait_node_destroy(node);
    }
}

/* Of two equally near NICs, all GPUs use the faster one. */
static void test_nic_speed(void)
{
    static const char text[] =
        "<system version=\"1\"><cpu numaid=\"0\">"
        "<pci busid=\"0000:01:00.0\" class=\"0x030200\"/>"
        "<pci busid=\"0000:02:00.0\" class=\"0x030200\"/>"
        "<pci busid=\"0000:03:00.0\" class=\"0x020000\"><nic>"
        "<net name=\"mlx5_0\" speed=\"25000\"/></nic></pci>"
        "<pci busid=\"0000:04:00.0\" class=\"0x020700\"><nic>"
        "<net name=\"mlx5_1\" speed=\"200000\"/></nic></pci>"
        "</cpu></system>";
    struct plait_node *node =
        plait_node_parse_nccl("text", text, sizeof(text) - 1, NULL);

    ok(node && node->gpus[0].nnics == 1 && node->gpus[0].nics[0] == 1 &&
           node->gpus[1].nnics == 1 && node->gpus[1].nics[0] == 1,
       "the fast one of two equally near NICs");
    plait_node_destroy(node);
}

/* `n` GPUs, n / 2 on each of two processors, with links[i][k] NVLinks of a
 * V100 (25 GB/s). */
static struct plait_node *linked(int n, const char *links)
{
    char *text = malloc(65536);
    struct plait_node *node;
    int at = 0, i, k;

    at += sprintf(text, "<system version=\"1\">");
    for (i = 0; i < n; i++) {
        if (i % (n / 2) == 0)
            at += sprintf(text + at, "%s<cpu numaid=\"%d\">", i ? "</cpu>" : "",
                          i / (n / 2));
        at += sprintf(text + at,
                      "<pci busid=\"0000:%02x:00.0\" "
                      "class=\"0x030200\"><gpu dev=\"%d\" sm=\"70\">",
                      i + 1, i);
        for (k = 0; k < n; k++) {
            if (links[i * n + k] != '0')
                at += sprintf(text + at,
                              "<nvlink target=\"0000:%02x:00.0\" "
                              "count=\"%c\" tclass=\"0x030200\"/>",
                              k + 1, links[i * n + k]);
        }
        at += sprintf(text + at, "</gpu></pci>");
    }
    at += sprintf(text + at, "</cpu></system>");
    node = plait_node_parse_nccl("text", text, (size_t)at, NULL);
    free(text);
    return node;
}

/* The cube mesh of eight V100s (DGX-1). */
static const char cube_mesh[] = "01121000"
                                "10210200"
                                "12020010"
                                "21200001"
                                "10000112"
                                "02001021"
                                "00101202"
                                "00012120";

static double weakest_pair(const struct plait_node *node, const int *order,
                           int first, int group)
{
    double least = 1e9;
    int i, k;

    for (i = first; i < first + group; i++) {
        for (k = i + 1; k < first + group; k++) {
            double link = node->links[order[i] * node->ngpus + order[k]];

            if (link < least)
                least = link;
        }
    }
    return least;
}

static void test_order(void)
{
    struct plait_node *node = linked(8, cube_mesh);
    int order[8], some[4] = {6, 1, 4, 5}, i, good;

    if (!ok(node != NULL && node->links[2] == 25 && node->links[3] == 50 &&
                node->nislands == 1,
            "a cube mesh reads"))
        return;
    plait_node_order_gpus(node, NULL, 8, 2, order);
    good = 1;
    for (i = 0; i < 8; i += 2)
        good &= weakest_pair(node, order, i, 2) == 50;
    ok(good, "pairs take the double links: %d%d %d%d %d%d %d%d", order[0],
       order[1], order[2], order[3], order[4], order[5], order[6], order[7]);
    plait_node_order_gpus(node, NULL, 8, 4, order);
    ok(weakest_pair(node, order, 0, 4) > 0 &&
           weakest_pair(node, order, 4, 4) > 0,
       "fours are fully linked: %d%d%d%d %d%d%d%d", order[0], order[1],
       order[2], order[3], order[4], order[5], order[6], order[7]);
    plait_node_order_gpus(node, NULL, 8, 8, order);
    for (i = 0, good = 1; i < 8; i++)
        good &= order[i] == i;
    ok(good, "one group of all keeps the bus order");
    plait_node_order_gpus(node, some, 4, 2, order);
    ok(order[0] + order[1] == 6 && order[2] + order[3] == 10,
       "of some GPUs, 1 goes with 5 and 4 with 6: %d%d %d%d", order[0],
       order[1], order[2], order[3]);
    plait_node_destroy(node);

    /* Two islands whose members alternate in the order of the bus. */
    node = linked(4, "0020"
                     "0002"
                     "2000"
                     "0200");
    plait_node_order_gpus(node, NULL, 4, 2, order);
    ok(order[0] == 0 && order[1] == 2 && order[2] == 1 && order[3] == 3,
       "groups stay inside an island");
    plait_node_order_gpus(node, NULL, 4, 1, order);
    ok(order[0] == 0 && order[1] == 2 && order[2] == 1 && order[3] == 3,
       "islands stay whole where groups are single GPUs");
    plait_node_order_gpus(node, NULL, 4, 3, order);
    good =
        (1 << order[0]) + (1 << order[1]) + (1 << order[2]) + (1 << order[3]);
    ok(good == 15, "a group that does not divide still gives a permutation");
    plait_node_destroy(node);
}

static void test_islands(void)
{
    static const char switched[] =
        "<system version=\"1\"><cpu numaid=\"0\">"
        "<pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu sm=\"90\">"
        "<nvlink target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/>"
        "</gpu></pci>"
        "<pci busid=\"0000:02:00.0\" class=\"0x030200\"><gpu sm=\"90\">"
        "<nvlink target=\"fffffff:ff:ff.0\" count=\"12\" tclass=\"0x068000\"/>"
        "</gpu></pci>"
        "<pci busid=\"0000:03:00.0\" class=\"0x030200\"><gpu sm=\"90\"/></pci>"
        "<nic><net name=\"eth0\"/></nic></cpu><cpu numaid=\"1\">"
        "<nic><net name=\"eth0\"/></nic></cpu></system>";
    static const char xgmi[] =
        "<system version=\"2\"><cpu numaid=\"0\">"
        "<pci busid=\"0000:01:00.0\" class=\"0x120000\"><gpu gcn=\"gfx942\">"
        "<xgmi target=\"0000:02:00.0\" count=\"1\" tclass=\"0x120000\"/>"
        "</gpu></pci>"
        "<pci busid=\"0000:02:00.0\" class=\"0x120000\"><gpu gcn=\"gfx942\">"
        "<xgmi target=\"0000:01:00.0\" count=\"1\" tclass=\"0x120000\"/>"
        "</gpu></pci></cpu></system>";
    struct plait_node *node =
        plait_node_parse_nccl("switched", switched, sizeof(switched) - 1, NULL);

    ok(node && node->nislands == 2 && node->links[1] == 300,
       "through a switch without an address, the narrower side counts");
    ok(node && node->nnics == 1 && node->numa_nodes == 2,
       "a NIC listed under both processors is one NIC");
    plait_node_destroy(node);
    node = plait_node_parse_nccl("xgmi", xgmi, sizeof(xgmi) - 1, NULL);
    ok(node && node->nislands == 1 && node->links[1] == 64 &&
           strcmp(node->gpus[1].vendor, "amd") == 0,
       "RCCL's xGMI links");
    plait_node_destroy(node);
}

static void test_partitions(void)
{
    static const char form[] =
        "<pci busid=\"0000:0%d:00.0\" class=\"0x120000\">%s%s</pci>";
    static const char gpu[] =
        "<gpu gcn=\"gfx942\"><xgmi target=\"0000:0%d:00.0\" count=\"1\" "
        "tclass=\"0x120000\"/></gpu>";
    char first[128], second[128], parts[1024];
    struct plait_node *node;
    int n;

    snprintf(first, sizeof(first), gpu, 2);
    snprintf(second, sizeof(second), gpu, 1);
    n = snprintf(parts, sizeof(parts), "<system><cpu numaid=\"0\">");
    n += snprintf(parts + n, sizeof(parts) - n, form, 1, first, first);
    n += snprintf(parts + n, sizeof(parts) - n, form, 2, second, second);
    n += snprintf(parts + n, sizeof(parts) - n, "</cpu></system>");
    node = plait_node_parse_nccl("parts", parts, n, NULL);
    ok(node && node->ngpus == 4 && node->links[2] == 64 &&
           node->links[3] == 64 && node->links[2 * 4 + 1] == 64,
       "a link to a device joins all of its partitions");
    plait_node_destroy(node);
}

static void test_bad_input(void)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"<system><cpu><pci busid=\"zz\"/></cpu></system>", "bus id"},
        {"<system>\n<cpu>\n</system>", "t:3: mismatched tag"},
        {"<system><pci busid=\"0000:01:00.0\"/></system>", "outside"},
        {"<topology/>", "--hwloc-xml"},
        {"<x/>", "expected <system>"},
        {"", "t:1: no element found"},
        {"<system><cpu numaid=\"no\"/></system>", "numaid"},
        {"<system><cpu><pci busid=\"0:1:0.0\"><gpu sm=\"8\"><nvlink "
         "target=\"0:2:0.0\" count=\"-1\"/></gpu></pci></cpu></system>",
         "count"},
    };
    struct plait_error err;
    struct plait_node *node;
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        err.text[0] = '\0';
        node = plait_node_parse_nccl("t", cases[i].text, strlen(cases[i].text),
                                     &err);
        ok(!node && strstr(err.text, cases[i].reason), "refused: %s", err.text);
        plait_node_destroy(node);
    }
    ok(!plait_node_create_synthetic("pack:x", &err) &&
           strstr(err.text, "pack:x"),
       "refused: %s", err.text);
    ok(!plait_node_create_xml("/nonexistent", &err) &&
           strstr(err.text, "No such file"),
       "refused: %s", err.text);
    ok(!plait_node_create_xml(fixture("hwloc/format-3.xml"), &err) &&
           strstr(err.text, "format 3.0"),
       "refused: %s", err.text);
    ok(!plait_node_create_nccl(fixture("hwloc/format-3.xml"), &err) &&
           strstr(err.text, "--hwloc-xml"),
       "refused: %s", err.text);
    ok(!plait_node_create_cached("<nothing/>", 11, &err), "refused: %s",
       err.text);
}

static void test_live_and_cache(void)
{
    struct plait_error err = {""};
    struct plait_node *node, *again;
    const char *value;
    size_t size = 0;
    char *xml;

    setenv("HWLOC_SYNTHETIC", "pack:7 core:1 pu:1", 1);
    node = plait_node_create(1, &err);
    ok(node && node->cores == 7, "HWLOC_* is obeyed where it is trusted");
    plait_node_destroy(node);
    node = plait_node_create(0, &err);
    ok(node && node->pus > 0 && node->pus != 7, "and ignored where not");
    value = getenv("HWLOC_SYNTHETIC");
    ok(value && strcmp(value, "pack:7 core:1 pu:1") == 0,
       "the environment is as before");
    if (!node)
        return;
    xml = plait_node_export_xml(node, &size);
    ok(xml && size == strlen(xml) + 1, "exports %zu bytes", size);
    again = xml ? plait_node_create_cached(xml, size, &err) : NULL;
    unsetenv("HWLOC_SYNTHETIC");
    ok(again && again->ngpus == node->ngpus && again->pus <= node->pus,
       "the cache reads back: %s", err.text);
    ok(again && hwloc_topology_is_thissystem(again->topology),
       "as this system");
    free(xml);
    plait_node_destroy(again);
    plait_node_destroy(node);
    node = one_switch(1);
    ok(node && !plait_node_export_xml(node, &size),
       "an NCCL topology cannot be exported");
    plait_node_destroy(node);
    plait_node_destroy(NULL);
}

/* The cache must keep all that discovery found, links included. */
static void test_cache_keeps_links(void)
{
    struct plait_node *node, *again = NULL;
    size_t size = 0;
    char *xml;

    node = plait_node_create_xml(fixture("hwloc/one-of-everything.xml"), NULL);
    xml = node ? plait_node_export_xml(node, &size) : NULL;
    if (xml)
        again = plait_node_create_cached(xml, size, NULL);
    ok(again && again->ngpus == 4 && again->links[1] == 300 &&
           strcmp(again->gpus[0].model, "NVIDIA A100-SXM4-80GB") == 0,
       "links and models survive the cache");
    free(xml);
    plait_node_destroy(again);
    plait_node_destroy(node);
}

/* A GB10's dump has no PCI classes; what is below each device shows its
 * kind. */
static void test_nccl_no_classes(void)
{
    static const char text[] =
        "<system version=\"1\"><cpu arch=\"arm64\">"
        "<pci busid=\"0000:01:00.0\"><nic>"
        "<net name=\"rocep1s0f0\" speed=\"200000\"/></nic></pci>"
        "<pci busid=\"000f:01:00.0\"><gpu dev=\"0\" sm=\"121\">"
        "<c2c bw=\"43125\" count=\"8\"/></gpu></pci></cpu></system>";
    struct plait_error err = {""};
    struct plait_node *node =
        plait_node_parse_nccl("t", text, sizeof(text) - 1, &err);

    ok(node && node->ngpus == 1 && node->nnics == 1 &&
           node->unclassified == 0 && node->nics[0].gbps == 25,
       "devices without a class are what stands in them: %s", err.text);
    plait_node_destroy(node);
}

/* A terminal obeys C1 characters, and shows text backwards. */
static void test_names(void)
{
    static const char text[] =
        "<system version=\"1\"><cpu numaid=\"0\"><nic>"
        "<net name=\"a&#x9b;2J&#10;&#x202e;b\" speed=\"25000\"/></nic>"
        "</cpu></system>";
    struct plait_node *node =
        plait_node_parse_nccl("t", text, sizeof(text) - 1, NULL);

    ok(node && strcmp(node->nics[0].name, "a?2J??b") == 0,
       "a name in a file is text: %s", node ? node->nics[0].name : "refused");
    plait_node_destroy(node);
}

/* If NVLink connects several hosts, NCCL writes them all to one file, so that
 * bus ids occur several times. */
static void test_nccl_hosts(void)
{
    static const char text[] =
        "<system version=\"1\">"
        "<cpu host_hash=\"0xa\" numaid=\"0\" affinity=\"ff\">"
        "<pci busid=\"0008:06:00.0\" class=\"0x030200\" vendor=\"0x10de\">"
        "<gpu dev=\"0\" sm=\"100\" rank=\"0\"><nvlink "
        "target=\"fffffff:ff:ff.0\" "
        "count=\"18\" tclass=\"0x068000\"/><c2c bw=\"44712\" count=\"5\"/>"
        "</gpu></pci></cpu>"
        "<cpu host_hash=\"0xb\" numaid=\"0\" affinity=\"ff\">"
        "<pci busid=\"0008:06:00.0\" class=\"0x030200\" vendor=\"0x10de\">"
        "<gpu dev=\"0\" sm=\"100\" rank=\"2\"><nvlink "
        "target=\"fffffff:ff:ff.0\" "
        "count=\"18\" tclass=\"0x068000\"/></gpu></pci></cpu>"
        "<cpu host_hash=\"0xa\" numaid=\"1\" affinity=\"ff00\">"
        "<pci busid=\"0009:06:00.0\" class=\"0x030200\" vendor=\"0x10de\">"
        "<gpu dev=\"1\" sm=\"100\" rank=\"1\"><nvlink "
        "target=\"fffffff:ff:ff.0\" "
        "count=\"18\" tclass=\"0x068000\"/></gpu></pci>"
        "<nic><net name=\"mlx5_0\" speed=\"400000\"/></nic></cpu>"
        "<cpu host_hash=\"0xb\" numaid=\"1\"><pci busid=\"0009:06:00.0\" "
        "class=\"0x030200\" vendor=\"0x10de\"/></cpu>"
        "</system>";
    struct plait_error err = {""};
    struct plait_node *node =
        plait_node_parse_nccl("t", text, sizeof(text) - 1, &err);

    ok(node && node->hosts == 2 && node->ngpus == 2 && node->nnics == 1 &&
           node->numa_nodes == 2 && node->pus == 16 && node->nislands == 1 &&
           node->links[1] > 0,
       "of several hosts in a file, the first one: %s", err.text);
    plait_node_destroy(node);
}

int main(void)
{
    test_nccl_hosts();
    test_nccl_no_classes();
    test_names();
    test_one_of_everything();
    test_no_pci();
    test_nic_balance();
    test_nic_speed();
    test_order();
    test_islands();
    test_partitions();
    test_bad_input();
    test_live_and_cache();
    test_cache_keeps_links();
    return done_testing();
}
