/* SPDX-License-Identifier: Apache-2.0 */
/* A node's topology as text, for plait topo. */
#include <stdlib.h>
#include <string.h>

#include "topology/cli/topo_draw.h"

const char *const topo_distance_names[] = {"X",   "PIX",  "PXB",
                                           "PHB", "NODE", "SYS"};

/* The first GPU behind the same PCIe switches as GPU `gpu` (which may be that
 * GPU itself), or -1 if it shares none with another GPU or a NIC. */
static int switch_of_gpu(const struct plait_node *node, int gpu)
{
    for (int i = 0; i < node->ngpus; i++) {
        if (i != gpu && node->gpu_gpu[gpu * node->ngpus + i] <= PLAIT_DIST_PXB)
            return i < gpu ? i : gpu;
    }
    for (int i = 0; i < node->nnics; i++) {
        if (node->gpu_nic[gpu * node->nnics + i] <= PLAIT_DIST_PXB)
            return gpu;
    }
    return -1;
}

static int switch_of_nic(const struct plait_node *node, int nic)
{
    for (int i = 0; i < node->ngpus; i++) {
        if (node->gpu_nic[i * node->nnics + nic] <= PLAIT_DIST_PXB)
            return switch_of_gpu(node, i);
    }
    return -1;
}

void topo_describe_island(const struct plait_node *node, int island,
                          struct topo_island *about)
{
    memset(about, 0, sizeof(*about));
    about->first = -1;
    about->all_to_all = 1;
    for (int i = 0; i < node->ngpus; i++) {
        if (node->gpus[i].island != island)
            continue;
        if (about->first < 0)
            about->first = i;
        about->ngpus++;
        for (int k = 0; k < node->ngpus; k++) {
            double link = node->links[i * node->ngpus + k];

            if (k == i || node->gpus[k].island != island)
                continue;
            if (link == 0 || (about->gbps > 0 && link != about->gbps))
                about->all_to_all = 0;
            if (link > about->gbps)
                about->gbps = link;
            if (link > 0 && (about->least == 0 || link < about->least))
                about->least = link;
        }
    }
}

/* A tree, drawn with line-drawing characters or in ASCII. */
struct tree {
    FILE *out;
    const char *branch, *corner, *bar, *blank;
};

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static void print_summary(const struct plait_node *node, FILE *out)
{
    char odd[256];

    fprintf(out, "%d GPU%s, %d NIC%s", node->ngpus, plural(node->ngpus),
            node->nnics, plural(node->nnics));
    if (node->numa_nodes > 0)
        fprintf(out, ", %d NUMA node%s", node->numa_nodes,
                plural(node->numa_nodes));
    if (node->cores > 0)
        fprintf(out, ", %d core%s", node->cores, plural(node->cores));
    if (node->pus > 0)
        fprintf(out, ", %d hardware thread%s", node->pus, plural(node->pus));
    fprintf(out, "\n");
    if (node->hosts > 1)
        fprintf(out, "the first of %d hosts in this file\n", node->hosts);
    if (plait_node_find_odd(node, odd, sizeof(odd)))
        fprintf(out, "%s\n", odd);
    if (node->unclassified > 0)
        fprintf(out,
                "%d PCI device%s of which the file does not say what "
                "%s\n",
                node->unclassified, plural(node->unclassified),
                node->unclassified == 1 ? "it is" : "they are");
}

/* The variable that lists the GPUs counts AMD's in another order. */
static void print_number(const struct plait_gpu *gpu, FILE *out)
{
    if (gpu->parts > 1)
        fprintf(out, ", part %d of %d", gpu->part, gpu->parts);
    if (strcmp(gpu->vendor, "amd") == 0 && gpu->number >= 0 &&
        gpu->number != gpu->index)
        fprintf(out, ", %d in ROCR_VISIBLE_DEVICES", gpu->number);
}

static void print_gpu(const struct plait_node *node, int gpu, FILE *out)
{
    const struct plait_gpu *self = &node->gpus[gpu];
    const char *name = self->model[0] ? self->model : self->vendor;

    fprintf(out, "GPU %d  %s%s%s", gpu, self->busid, name[0] ? "  " : "", name);
    print_number(self, out);
    for (int i = 0; i < self->nnics; i++)
        fprintf(out, "%s%s", i ? "," : "  uses ",
                node->nics[self->nics[i]].name);
    fprintf(out, "\n");
}

static void print_nic(const struct plait_node *node, int nic, FILE *out)
{
    const struct plait_nic *self = &node->nics[nic];

    fprintf(out, "NIC %d  %s", nic, self->name);
    if (strcmp(self->name, self->busid) != 0 && self->busid[0])
        fprintf(out, "  %s", self->busid);
    if (self->gbps > 0)
        fprintf(out, "  %.4g GB/s", self->gbps);
    fprintf(out, "\n");
}

int topo_devices_of(const struct plait_node *node, int numa,
                    struct topo_device *devices)
{
    int n = 0;

    for (int i = 0; i < node->ngpus; i++) {
        int behind = switch_of_gpu(node, i);

        if (node->gpus[i].numa != numa)
            continue;
        devices[n++] = (struct topo_device){0, i, behind};
    }
    for (int i = 0; i < node->nnics; i++) {
        if (node->nics[i].numa == numa)
            devices[n++] = (struct topo_device){1, i, switch_of_nic(node, i)};
    }
    /* Bring what is behind one switch together, else keep the order. */
    for (int i = 0; i < n; i++) {
        for (int k = i + 1; k < n; k++) {
            if (devices[i].behind >= 0 &&
                devices[k].behind == devices[i].behind) {
                struct topo_device moved = devices[k];

                memmove(&devices[i + 2], &devices[i + 1],
                        (size_t)(k - i - 1) * sizeof(*devices));
                devices[++i] = moved;
            }
        }
    }
    return n;
}

static void print_devices(const struct plait_node *node, int numa,
                          const struct tree *tree, const char *indent)
{
    struct topo_device *devices =
        calloc((size_t)(node->ngpus + node->nnics) + 1, sizeof(*devices));
    int n = devices ? topo_devices_of(node, numa, devices) : 0, end;

    for (int i = 0; i < n; i = end) {
        int last;

        for (end = i + 1; end < n && devices[i].behind >= 0 &&
                          devices[end].behind == devices[i].behind;)
            end++;
        last = end == n;
        if (devices[i].behind >= 0)
            fprintf(tree->out, "%s%sswitch\n", indent,
                    last ? tree->corner : tree->branch);
        for (int k = i; k < end; k++) {
            fprintf(tree->out, "%s", indent);
            if (devices[i].behind >= 0)
                fprintf(tree->out, "%s%s", last ? tree->blank : tree->bar,
                        k + 1 == end ? tree->corner : tree->branch);
            else
                fprintf(tree->out, "%s", last ? tree->corner : tree->branch);
            if (devices[k].is_nic)
                print_nic(node, devices[k].index, tree->out);
            else
                print_gpu(node, devices[k].index, tree->out);
        }
    }
    free(devices);
}

int *topo_numas_of(const struct plait_node *node, int *n)
{
    size_t most = (size_t)(node->ngpus + node->nnics + node->numa_nodes) + 1;
    int *numas = calloc(most, sizeof(*numas)), count = 0;
    hwloc_obj_t obj = NULL;

    if (!numas)
        return NULL;
    for (int i = 0; i < node->ngpus; i++)
        numas[count++] = node->gpus[i].numa;
    for (int i = 0; i < node->nnics; i++)
        numas[count++] = node->nics[i].numa;
    while (node->topology && (size_t)count < most &&
           (obj = hwloc_get_next_obj_by_type(node->topology, HWLOC_OBJ_NUMANODE,
                                             obj))) {
        if (plait_node_is_host(node->topology, obj))
            numas[count++] = (int)obj->os_index;
    }
    for (int i = 0; i < count; i++) {
        for (int k = i + 1; k < count; k++) {
            if (numas[k] < numas[i]) {
                int numa = numas[i];

                numas[i] = numas[k];
                numas[k] = numa;
            }
        }
    }
    for (int i = *n = 0; i < count; i++) {
        if (*n == 0 || numas[*n - 1] != numas[i])
            numas[(*n)++] = numas[i];
    }
    return numas;
}

static void print_numa(const struct plait_node *node, int numa, FILE *out)
{
    hwloc_obj_t obj = NULL;
    char cpus[256];
    int ncores;

    if (numa < 0) {
        fprintf(out, node->numa_nodes ? "near to no NUMA node\n"
                                      : "NUMA nodes not known\n");
        return;
    }
    fprintf(out, "NUMA node %d", numa);
    while (node->topology && (obj = hwloc_get_next_obj_by_type(
                                  node->topology, HWLOC_OBJ_NUMANODE, obj))) {
        if ((int)obj->os_index != numa)
            continue;
        if (hwloc_bitmap_iszero(obj->cpuset)) {
            fprintf(out, "  memory only");
            continue;
        }
        hwloc_bitmap_list_snprintf(cpus, sizeof(cpus), obj->cpuset);
        ncores = hwloc_get_nbobjs_inside_cpuset_by_type(
            node->topology, obj->cpuset, HWLOC_OBJ_CORE);
        if (ncores > 0)
            fprintf(out, "  %d core%s", ncores, plural(ncores));
        fprintf(out, "%s threads %s", ncores > 0 ? "," : " ", cpus);
    }
    fprintf(out, "\n");
}

static void print_islands(const struct plait_node *node, FILE *out)
{
    struct topo_island about;
    const char *before = "\n";

    for (int i = 0; i < node->nislands; i++) {
        topo_describe_island(node, i, &about);
        if (about.ngpus < 2)
            continue;
        fprintf(out, "%s%s joins GPUs", before,
                plait_node_link_name(node, about.first));
        before = "";
        for (int k = 0; k < node->ngpus; k++) {
            if (node->gpus[k].island == i)
                fprintf(out, " %d", k);
        }
        if (about.all_to_all)
            fprintf(out, ": %.4g GB/s each way between any two\n", about.gbps);
        else if (about.least < about.gbps)
            fprintf(out, ": %.4g to %.4g GB/s each way where linked\n",
                    about.least, about.gbps);
        else
            fprintf(out, ": %.4g GB/s each way where linked\n", about.gbps);
    }
}

/* A link's bandwidth where there is one, else the distance. */
static void print_matrix(const struct plait_node *node, FILE *out)
{
    fprintf(out, "\n       ");
    for (int k = 0; k < node->ngpus; k++)
        fprintf(out, " %5d", k);
    for (int k = 0; k < node->nnics; k++)
        fprintf(out, k > 9 ? "  NIC%d" : "   NIC%d", k);
    fprintf(out, "\n");
    for (int i = 0; i < node->ngpus; i++) {
        fprintf(out, "GPU %-3d", i);
        for (int k = 0; k < node->ngpus; k++) {
            int at = i * node->ngpus + k;

            if (node->links[at] > 0)
                fprintf(out, " %5.4g", node->links[at]);
            else
                fprintf(out, " %5s", topo_distance_names[node->gpu_gpu[at]]);
        }
        for (int k = 0; k < node->nnics; k++)
            fprintf(out, "  %5s",
                    topo_distance_names[node->gpu_nic[i * node->nnics + k]]);
        fprintf(out, "\n");
    }
}

static void print_legend(const struct plait_node *node, FILE *out)
{
    static const char *const meanings[] = {NULL,
                                           "one PCIe switch",
                                           "several PCIe switches",
                                           "one host bridge",
                                           "one NUMA node",
                                           "across NUMA nodes"};
    int n = node->ngpus, used[PLAIT_DIST_SYS + 1] = {0}, links = 0;
    const char *separator = "\n";

    for (int i = 0; i < n * n; i++) {
        links |= node->links[i] > 0;
        used[node->gpu_gpu[i]] |= node->links[i] == 0;
    }
    for (int i = 0; i < n * node->nnics; i++)
        used[node->gpu_nic[i]] = 1;
    if (links) {
        fprintf(out, "%snumbers: GB/s each way over direct links", separator);
        separator = "\n";
    }
    for (int i = PLAIT_DIST_PIX; i <= PLAIT_DIST_SYS; i++) {
        if (used[i]) {
            fprintf(out, "%s%s: %s", separator, topo_distance_names[i],
                    meanings[i]);
            separator = "; ";
        }
    }
    fprintf(out, "\n");
}

void topo_print_text(const struct plait_node *node, int utf8, FILE *out)
{
    static const struct tree lines = {NULL, "\u251c\u2500 ", "\u2514\u2500 ",
                                      "\u2502  ", "   "};
    static const struct tree typed = {NULL, "|- ", "`- ", "|  ", "   "};
    struct tree tree = utf8 ? lines : typed;
    int n = 0, *numas = topo_numas_of(node, &n);

    tree.out = out;
    print_summary(node, out);
    for (int i = 0; numas && i < n; i++) {
        fprintf(out, i ? "" : "\n");
        print_numa(node, numas[i], out);
        print_devices(node, numas[i], &tree, "  ");
    }
    free(numas);
    if (node->ngpus == 0)
        return;
    print_islands(node, out);
    print_matrix(node, out);
    print_legend(node, out);
}
