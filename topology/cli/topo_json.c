/* SPDX-License-Identifier: Apache-2.0 */
/* A node's topology as JSON, for plait topo --json. */
#include "topology/cli/topo_draw.h"

static json_t *gpus_to_json(const struct plait_node *node)
{
    json_t *list = json_array();

    for (int i = 0; i < node->ngpus; i++) {
        const struct plait_gpu *gpu = &node->gpus[i];
        json_t *nics = json_array();

        for (int k = 0; k < gpu->nnics; k++)
            json_array_append_new(nics,
                                  json_string(node->nics[gpu->nics[k]].name));
        json_array_append_new(
            list,
            json_pack("{si ss ss ss si si so si si si ss}", "index", gpu->index,
                      "busid", gpu->busid, "vendor", gpu->vendor, "model",
                      gpu->model, "numa", gpu->numa, "island", gpu->island,
                      "nics", nics, "number", gpu->number, "part", gpu->part,
                      "parts", gpu->parts, "uuid", gpu->uuid));
    }
    return list;
}

static json_t *islands_to_json(const struct plait_node *node)
{
    json_t *list = json_array();

    for (int i = 0; i < node->nislands; i++) {
        json_t *island = json_array();

        for (int k = 0; k < node->ngpus; k++) {
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

static json_t *matrices_to_json(const struct plait_node *node, json_t *gpu_gpu,
                                json_t *gpu_nic)
{
    json_t *links = json_array();

    for (int i = 0; i < node->ngpus; i++) {
        json_t *row = json_array(), *near = json_array(), *nics = json_array();

        for (int k = 0; k < node->ngpus; k++) {
            int at = i * node->ngpus + k;

            json_array_append_new(row, number(node->links[at]));
            json_array_append_new(
                near, json_string(topo_distance_names[node->gpu_gpu[at]]));
        }
        for (int k = 0; k < node->nnics; k++)
            json_array_append_new(
                nics,
                json_string(
                    topo_distance_names[node->gpu_nic[i * node->nnics + k]]));
        json_array_append_new(links, row);
        json_array_append_new(gpu_gpu, near);
        json_array_append_new(gpu_nic, nics);
    }
    return links;
}

static json_t *nics_to_json(const struct plait_node *node)
{
    json_t *list = json_array();

    for (int i = 0; i < node->nnics; i++)
        json_array_append_new(list, json_pack("{ss ss si so}", "name",
                                              node->nics[i].name, "busid",
                                              node->nics[i].busid, "numa",
                                              node->nics[i].numa, "gbps",
                                              number(node->nics[i].gbps)));
    return list;
}

json_t *topo_to_json(const struct plait_node *node)
{
    json_t *gpu_gpu = json_array(), *gpu_nic = json_array();
    json_t *links = matrices_to_json(node, gpu_gpu, gpu_nic);

    char odd[256] = "";

    plait_node_find_odd(node, odd, sizeof(odd));
    return json_pack("{so so so so so so si si si si si ss}", "gpus",
                     gpus_to_json(node), "islands", islands_to_json(node),
                     "links", links, "nics", nics_to_json(node),
                     "gpu_distances", gpu_gpu, "nic_distances", gpu_nic,
                     "numa_nodes", node->numa_nodes, "cores", node->cores,
                     "pus", node->pus, "unclassified", node->unclassified,
                     "hosts", node->hosts ? node->hosts : 1, "odd", odd);
}
