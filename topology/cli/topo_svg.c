/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "topology/cli/svg.h"
#include "topology/cli/topo_picture.h"

/* The machine as a picture: processors side by side on top, under each the PCIe
 * switches with their NICs and GPUs, and under the GPUs the links that join
 * them. */

static void print_box(const struct topo_picture *picture, double x, double y,
                      double width, double height, const char *class)
{
    fprintf(picture->out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
            "height=\"%.1f\" rx=\"6\" class=\"%s\"/>\n",
            x, y, width, height, class);
}

static void print_line(const struct topo_picture *picture, double x1, double y1,
                       double x2, double y2, const char *class)
{
    fprintf(picture->out, "<path d=\"M%.1f %.1fL%.1f %.1f\" class=\"%s\"/>\n",
            x1, y1, x2, y2, class);
}

/* "NVIDIA A100-SXM4-80GB" -> "A100-SXM4-80GB", to fit a card. */
static void short_model(const struct plait_gpu *gpu, char *text, size_t size)
{
    static const char *const makers[] = {"NVIDIA ", "Tesla ", "AMD ",
                                         "Instinct "};
    const char *from = gpu->model[0] ? gpu->model : gpu->vendor;

    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
        if (strncmp(from, makers[i], strlen(makers[i])) == 0)
            from += strlen(makers[i]);
    }
    svg_shorten(from, 16, text, size);
}

static const char *short_busid(const char *busid)
{
    return strncmp(busid, "0000:", 5) == 0 ? busid + 5 : busid;
}

static void draw_cpus(const struct topo_picture *picture)
{
    for (int i = 0; i < picture->ncolumns; i++) {
        const struct topo_column *column = &picture->columns[i];
        double y = picture->cpu_y;

        if (i > 0) /* the processors' own interconnect */
            print_line(picture, column->x - 2 * GAP,
                       y + picture->cpu_height / 2, column->x,
                       y + picture->cpu_height / 2, "bus");
        print_box(picture, column->x, y, column->width, picture->cpu_height,
                  "cpu");
        svg_print_label(picture->out, column->x + GAP, y + 23, "h2",
                        column->numa >= 0 ? "NUMA node %d" : "any NUMA node",
                        column->numa);
        if (column->nthreads > 0)
            svg_print_label(picture->out, column->x + GAP, y + 41, "small",
                            "%d cores, %d threads", column->ncores,
                            column->nthreads);
        for (int k = 0; k < column->ncores; k++)
            fprintf(picture->out,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" "
                    "height=\"%d\" class=\"core\"/>\n",
                    column->x + GAP + k % column->row * CORE,
                    y + 52 + k / column->row * CORE, CORE - 2, CORE - 2);
    }
}

static void draw_groups(const struct topo_picture *picture)
{
    double bottom = picture->cpu_y + picture->cpu_height;

    for (int i = 0; i < picture->ngroups; i++) {
        const struct topo_group *group = &picture->groups[i];
        double middle = group->x + group->width / 2;

        if (!group->is_switch)
            continue;
        print_line(picture, middle, bottom, middle, picture->group_y, "bus");
        print_box(picture, group->x, picture->group_y, group->width,
                  picture->link_y - picture->group_y, "switch");
        svg_print_label(picture->out, group->x + GAP, picture->group_y + 19,
                        "small", "PCIe switch");
    }
}

/* A device on its own port gets its own line to the processor. */
static void draw_ports(const struct topo_picture *picture)
{
    double bottom = picture->cpu_y + picture->cpu_height;
    const struct topo_device *at = picture->devices;

    for (int i = 0; i < picture->ngroups; i++) {
        const struct topo_group *group = &picture->groups[i];

        for (int k = 0; k < group->ngpus + group->nnics; k++, at++) {
            if (!group->is_switch && at->is_nic)
                print_line(picture, picture->nic_x[at->index], bottom,
                           picture->nic_x[at->index], picture->nic_y, "bus");
            else if (!group->is_switch)
                print_line(picture, picture->gpu_x[at->index] - CARD / 2.0 + 6,
                           bottom, picture->gpu_x[at->index] - CARD / 2.0 + 6,
                           picture->gpu_y, "bus");
        }
    }
}

static void draw_devices(const struct topo_picture *picture)
{
    const struct plait_node *node = picture->node;

    for (int i = 0; i < node->ngpus; i++) {
        for (int k = 0; k < node->gpus[i].nnics; k++)
            print_line(picture, picture->gpu_x[i], picture->gpu_y,
                       picture->nic_x[node->gpus[i].nics[k]],
                       picture->nic_y + NIC_HEIGHT, "uses");
    }
    for (int i = 0; i < node->nnics; i++) {
        double x = picture->nic_x[i];
        char name[64];

        fprintf(picture->out, "<g>");
        svg_print_title(picture->out, "%s, PCI %s", node->nics[i].name,
                        node->nics[i].busid);
        print_box(picture, x - CARD / 2.0, picture->nic_y, CARD, NIC_HEIGHT,
                  "nic");
        svg_shorten(short_busid(node->nics[i].name), 14, name, sizeof(name));
        svg_print_label(picture->out, x, picture->nic_y + 21, "mid h3", "%s",
                        name);
        fprintf(picture->out, "</g>\n");
    }
    for (int i = 0; i < node->ngpus; i++) {
        double x = picture->gpu_x[i], y = picture->gpu_y;
        char model[64];

        short_model(&node->gpus[i], model, sizeof(model));
        fprintf(picture->out, "<g>");
        svg_print_title(picture->out, "GPU %d: %s, PCI %s", i,
                        node->gpus[i].model, node->gpus[i].busid);
        print_box(picture, x - CARD / 2.0, y, CARD, GPU_HEIGHT,
                  strcmp(node->gpus[i].vendor, "amd") == 0 ? "gpu amd" : "gpu");
        svg_print_label(picture->out, x, y + 23, "mid h2", "GPU %d", i);
        svg_print_label(picture->out, x, y + 40, "mid small", "%s", model);
        svg_print_label(picture->out, x, y + 55, "mid tiny", "%s",
                        short_busid(node->gpus[i].busid));
        fprintf(picture->out, "</g>\n");
    }
}

/* All GPUs of an island are linked with each other: one bar below them. */
static double draw_bar(const struct topo_picture *picture, int island,
                       const struct topo_island *about, double y)
{
    const struct plait_node *node = picture->node;
    double left = picture->width, right = 0;

    for (int i = 0; i < node->ngpus; i++) {
        if (node->gpus[i].island != island)
            continue;
        if (picture->gpu_x[i] < left)
            left = picture->gpu_x[i];
        if (picture->gpu_x[i] > right)
            right = picture->gpu_x[i];
        print_line(picture, picture->gpu_x[i], picture->gpu_y + GPU_HEIGHT,
                   picture->gpu_x[i], y + 26, "link");
    }
    print_box(picture, left - CARD / 2.0, y + 24, right - left + CARD, 32,
              "bar");
    svg_print_label(picture->out, (left + right) / 2, y + 45, "mid h3 onbar",
                    about->ngpus > 2 ? "%s, %.4g GB/s each way between any two"
                                     : "%s %.4g GB/s",
                    plait_node_link_name(node, about->first), about->gbps);
    return y + 56;
}

/* Not all pairs are linked: an arc for every link, as thick as its bandwidth.
 */
static double draw_arcs(const struct topo_picture *picture, int island,
                        const struct topo_island *about, double y)
{
    const struct plait_node *node = picture->node;
    double from = picture->gpu_y + GPU_HEIGHT, deepest = 0, middle = 0;
    int n = 0;

    for (int i = 0; i < node->ngpus; i++) {
        if (node->gpus[i].island != island)
            continue;
        middle += picture->gpu_x[i];
        n++;
        for (int k = i + 1; k < node->ngpus; k++) {
            double link = node->links[i * node->ngpus + k];
            double x1 = picture->gpu_x[i], x2 = picture->gpu_x[k];
            double depth = 26 + (x2 > x1 ? x2 - x1 : x1 - x2) * 0.16;

            if (link <= 0)
                continue;
            if (depth > deepest)
                deepest = depth;
            fprintf(picture->out,
                    "<path d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f "
                    "%.1f %.1f\" class=\"arc\" stroke-width=\"%.1f\">",
                    x1, from, x1, from + depth * 1.33, x2, from + depth * 1.33,
                    x2, from, 2 + 4 * link / about->gbps);
            svg_print_title(picture->out, "GPU %d and %d: %.4g GB/s each way",
                            i, k, link);
            fprintf(picture->out, "</path>\n");
        }
    }
    y = from + deepest + 22;
    if (about->least < about->gbps)
        svg_print_label(picture->out, middle / n, y, "mid small",
                        "%s, %.4g to %.4g GB/s each way",
                        plait_node_link_name(node, about->first), about->least,
                        about->gbps);
    else
        svg_print_label(picture->out, middle / n, y, "mid small",
                        "%s, %.4g GB/s each way",
                        plait_node_link_name(node, about->first), about->gbps);
    return y;
}

static double draw_links(const struct topo_picture *picture)
{
    double bottom = picture->link_y, y;
    struct topo_island about;

    for (int i = 0; i < picture->node->nislands; i++) {
        topo_describe_island(picture->node, i, &about);
        if (about.ngpus < 2)
            continue;
        y = about.all_to_all ? draw_bar(picture, i, &about, picture->link_y)
                             : draw_arcs(picture, i, &about, picture->link_y);
        if (y > bottom)
            bottom = y;
    }
    return bottom;
}

static const char light[] =
    ".h1{font-size:16px;font-weight:bold}"
    ".h2{font-size:14px;font-weight:bold}"
    ".h3{font-size:12px}.small{font-size:11px;fill:#475467}"
    ".tiny{font-size:10px;fill:#5b6b7b}.mid{text-anchor:middle}"
    ".cpu{fill:#e9edf1;stroke:#5b6b7b;stroke-width:1.5}.core{fill:#9fb2cf}"
    ".switch{fill:#f8f9fb;stroke:#98a2b3;stroke-width:1.2;"
    "stroke-dasharray:5 3}"
    ".gpu{fill:#e4f2cd;stroke:#5a8f00;stroke-width:1.5}"
    ".amd{fill:#fbe0dc;stroke:#c0321f}"
    ".nic{fill:#dbeafb;stroke:#2b6cb0;stroke-width:1.3}"
    ".bus{stroke:#51607a;stroke-width:2.2;fill:none}"
    ".uses{stroke:#2b6cb0;stroke-width:2;fill:none}"
    ".link{stroke:#d97706;stroke-width:5;fill:none}"
    ".bar{fill:#f59e0b;stroke:#b45309;stroke-width:1.5}"
    ".onbar{fill:#3b1d00;font-weight:bold}"
    ".arc{stroke:#d97706;fill:none;stroke-linecap:round}";
static const char dark[] =
    ".small,.tiny{fill:#b4c2cf}.onbar{fill:#3b1d00}"
    ".cpu{fill:#26323d;stroke:#8394a4}.core{fill:#6f86a8}"
    ".switch{fill:#1b242d;stroke:#6b7a88}.gpu{fill:#2a3d12;stroke:#7fb32a}"
    ".amd{fill:#4a201a;stroke:#e0665a}.nic{fill:#173350;stroke:#5b9bd8}"
    ".bus{stroke:#8394a4}.uses{stroke:#5b9bd8}";

static void print_title(const struct topo_picture *picture)
{
    const struct plait_node *node = picture->node;
    char model[64] = "", numa[32] = "";
    int same = 1;

    if (node->numa_nodes)
        snprintf(numa, sizeof(numa), ", %d NUMA node%s", node->numa_nodes,
                 node->numa_nodes == 1 ? "" : "s");
    for (int i = 1; i < node->ngpus; i++)
        same &= strcmp(node->gpus[i].model, node->gpus[0].model) == 0;
    if (node->ngpus > 0 && same && node->gpus[0].model[0])
        short_model(&node->gpus[0], model, sizeof(model));
    svg_print_label(picture->out, MARGIN, 44, "h1", "%d %s%s, %d NIC%s%s",
                    node->ngpus, model[0] ? "\u00d7 " : "",
                    model[0]           ? model
                    : node->ngpus == 1 ? "GPU"
                                       : "GPUs",
                    node->nnics, node->nnics == 1 ? "" : "s", numa);
}

static double draw_legend(const struct topo_picture *picture, double y)
{
    const struct plait_node *node = picture->node;
    double x = MARGIN;
    int links = 0;

    for (int i = 0; i < node->ngpus * node->ngpus; i++)
        links |= node->links[i] > 0;
    if (node->ngpus == 0 || (!links && node->nnics == 0))
        return y;
    y += 30;
    if (node->nnics > 0) {
        print_line(picture, x, y - 4, x + 28, y - 4, "uses");
        svg_print_label(picture->out, x + 36, y, "small", "the NIC to use");
        x += 150;
    }
    if (links) {
        print_line(picture, x, y - 4, x + 28, y - 4, "link");
        svg_print_label(picture->out, x + 36, y, "small", "direct links");
    }
    return y;
}

void topo_print_svg(const struct plait_node *node, FILE *out)
{
    struct topo_picture picture = {.node = node, .out = out};
    double bottom;
    char *body = NULL;
    size_t size;

    if (topo_picture_place(&picture) < 0 ||
        !(picture.out = open_memstream(&body, &size)))
        goto out;
    /* The links are drawn first, under the cards, and give the height. */
    draw_groups(&picture);
    draw_ports(&picture);
    bottom = draw_legend(&picture, draw_links(&picture)) + MARGIN / 2;
    draw_cpus(&picture);
    draw_devices(&picture);
    print_title(&picture);
    fclose(picture.out);
    svg_print_head(out, (int)(picture.width + 0.5), (int)(bottom + 0.5), light,
                   dark);
    fwrite(body, 1, size, out);
    fprintf(out, "</svg>\n");
out:
    free(body);
    topo_picture_release(&picture);
}
