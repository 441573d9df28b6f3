/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "node.h"

/* plait topo: what a machine looks like. */

struct request {
    const char *hwloc_xml;
    const char *nccl_xml;
    const char *synthetic;
    int json;
};

static int print_help(void)
{
    printf("Usage: plait topo [OPTION...]\n\n"
           "Show the GPUs, links, NICs and cores of this machine, or of one "
           "described by\na file.\n\n"
           "  --hwloc-xml FILE   read an hwloc XML (lstopo FILE.xml)\n"
           "  --nccl-xml FILE    read an NCCL topology (NCCL_TOPO_DUMP_FILE)\n"
           "  --synthetic TEXT   make up a machine (\"pack:2 core:8 pu:2\")\n"
           "  --json             print one JSON document\n"
           "  --help             print this\n");
    return PLAIT_EXIT_GOOD;
}

static json_t *gpus_to_json(const struct plait_node *node)
{
    json_t *list = json_array();
    int i, k;

    for (i = 0; i < node->ngpus; i++) {
        const struct plait_gpu *gpu = &node->gpus[i];
        json_t *nics = json_array();

        for (k = 0; k < gpu->nnics; k++)
            json_array_append_new(
                nics, json_string(node->nics[gpu->nics[k]].name));
        json_array_append_new(
            list, json_pack("{si ss ss ss si si so}", "index", gpu->index,
                            "busid", gpu->busid, "vendor", gpu->vendor,
                            "model", gpu->model, "numa", gpu->numa, "island",
                            gpu->island, "nics", nics));
    }
    return list;
}

static json_t *islands_to_json(const struct plait_node *node)
{
    json_t *list = json_array();
    int i, k;

    for (i = 0; i < node->nislands; i++) {
        json_t *island = json_array();

        for (k = 0; k < node->ngpus; k++) {
            if (node->gpus[k].island == i)
                json_array_append_new(island, json_integer(k));
        }
        json_array_append_new(list, island);
    }
    return list;
}

/* Whole numbers stay whole: 600, not 600.0. */
static json_t *number(double value)
{
    return value == (double)(long)value ? json_integer((long)value)
                                        : json_real(value);
}

static const char *const distance_names[] = {"X",   "PIX",  "PXB",
                                             "PHB", "NODE", "SYS"};

static json_t *matrices_to_json(const struct plait_node *node,
                                json_t *gpu_gpu, json_t *gpu_nic)
{
    json_t *links = json_array();
    int i, k;

    for (i = 0; i < node->ngpus; i++) {
        json_t *row = json_array(), *near = json_array(), *nics = json_array();

        for (k = 0; k < node->ngpus; k++) {
            int at = i * node->ngpus + k;

            json_array_append_new(row, number(node->links[at]));
            json_array_append_new(
                near, json_string(distance_names[node->gpu_gpu[at]]));
        }
        for (k = 0; k < node->nnics; k++)
            json_array_append_new(
                nics, json_string(
                          distance_names[node->gpu_nic[i * node->nnics + k]]));
        json_array_append_new(links, row);
        json_array_append_new(gpu_gpu, near);
        json_array_append_new(gpu_nic, nics);
    }
    return links;
}

static json_t *nics_to_json(const struct plait_node *node)
{
    json_t *list = json_array();
    int i;

    for (i = 0; i < node->nnics; i++)
        json_array_append_new(
            list, json_pack("{ss ss si so}", "name", node->nics[i].name,
                            "busid", node->nics[i].busid, "numa",
                            node->nics[i].numa, "gbps",
                            number(node->nics[i].gbps)));
    return list;
}

static int print_json(const struct plait_node *node)
{
    json_t *gpu_gpu = json_array(), *gpu_nic = json_array();
    json_t *links = matrices_to_json(node, gpu_gpu, gpu_nic);

    return plait_cmd_json(json_pack(
        "{so so so so so so si si si}", "gpus", gpus_to_json(node), "islands",
        islands_to_json(node), "links", links, "nics", nics_to_json(node),
        "gpu_distances", gpu_gpu, "nic_distances", gpu_nic, "numa_nodes",
        node->numa_nodes, "cores", node->cores, "pus", node->pus));
}

static void print_gpus(const struct plait_node *node)
{
    int i, k;

    for (i = 0; i < node->ngpus; i++) {
        const struct plait_gpu *gpu = &node->gpus[i];

        printf("GPU %d  %-12s  %s %s", i, gpu->busid, gpu->vendor, gpu->model);
        if (gpu->numa >= 0)
            printf("  NUMA %d", gpu->numa);
        for (k = 0; k < gpu->nnics; k++)
            printf("%s%s", k ? "," : "  NIC ",
                   node->nics[gpu->nics[k]].name);
        printf("\n");
    }
}

static void print_text(const struct plait_node *node)
{
    printf("%d GPUs, %d NICs, %d NUMA nodes, %d cores, %d PUs\n", node->ngpus,
           node->nnics, node->numa_nodes, node->cores, node->pus);
    print_gpus(node);
}

static struct plait_node *create_node(const struct request *request,
                                      struct plait_error *err)
{
    if (request->hwloc_xml)
        return plait_node_create_xml(request->hwloc_xml, err);
    if (request->nccl_xml)
        return plait_node_create_nccl(request->nccl_xml, err);
    if (request->synthetic)
        return plait_node_create_synthetic(request->synthetic, err);
    return plait_node_create(1, err);
}

static int run(const struct request *request)
{
    struct plait_error err;
    struct plait_node *node = create_node(request, &err);
    int rc = PLAIT_EXIT_GOOD;

    if (!node)
        return plait_cmd_failed("%s", err.text);
    if (request->json)
        rc = print_json(node);
    else
        print_text(node);
    plait_node_destroy(node);
    return rc;
}

int plait_cmd_topo(int argc, char **argv)
{
    enum { HWLOC_XML = 256, NCCL_XML, SYNTHETIC, JSON };
    static const struct option options[] = {
        {"hwloc-xml", required_argument, NULL, HWLOC_XML},
        {"nccl-xml", required_argument, NULL, NCCL_XML},
        {"synthetic", required_argument, NULL, SYNTHETIC},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, 'h'},
        {0}};
    struct request request = {0};
    int sources = 0, opt;

    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (opt) {
        case HWLOC_XML:
            request.hwloc_xml = optarg;
            sources++;
            break;
        case NCCL_XML:
            request.nccl_xml = optarg;
            sources++;
            break;
        case SYNTHETIC:
            request.synthetic = optarg;
            sources++;
            break;
        case JSON:
            request.json = 1;
            break;
        case 'h':
            return print_help();
        default:
            return PLAIT_EXIT_USAGE; /* getopt_long has said why */
        }
    }
    if (optind < argc)
        return plait_cmd_misused("topo: unexpected argument '%s'",
                                 argv[optind]);
    if (sources > 1)
        return plait_cmd_misused("topo: give one of --hwloc-xml, --nccl-xml "
                                 "and --synthetic");
    return run(&request);
}
