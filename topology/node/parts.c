/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that a library counts below one PCI device. */
#include "topology/node/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/node/build.h"
#include "topology/node/hwloc.h"

/* Ends with the part; "-" stands for no UUID. */
#define PART_FORM "%d/%d/%s"

void node_note_part(hwloc_obj_t pci, const struct node_part *part)
{
    char text[NODE_UUID + 32];

    snprintf(text, sizeof(text), PART_FORM, part->number, part->file,
             part->uuid[0] ? part->uuid : "-");
    hwloc_obj_add_info(pci, NODE_INFO_PART, text);
}

static int read_noted(hwloc_obj_t pci, struct node_part *parts)
{
    int n = 0;

    for (unsigned i = 0; i < NODE_INFOS_COUNT(pci) && n < NODE_PARTS_MOST;
         i++) {
        struct node_part part = {0};

        if (strcmp(NODE_INFOS(pci)[i].name, NODE_INFO_PART) != 0 ||
            sscanf(NODE_INFOS(pci)[i].value, "%d/%d/%63s", &part.number,
                   &part.file, part.uuid) != 3)
            continue;
        if (strcmp(part.uuid, "-") == 0)
            part.uuid[0] = '\0';
        parts[n++] = part;
    }
    return n;
}

int node_found_by(hwloc_obj_t osdev, const char *library)
{
    size_t n = strlen(library);

    if (!osdev->name || strncmp(osdev->name, library, n) != 0 ||
        osdev->name[n] < '0' || osdev->name[n] > '9')
        return -1;
    return atoi(osdev->name + n);
}

/* The libraries whose devices tell the parts, the first with several wins. */
static const struct {
    const char *vendor, *library, *uuid;
} libraries[] = {
    {"amd", "rsmi", "AMDUUID"},       {"nvidia", "nvml", "NVIDIAUUID"},
    {"nvidia", "cuda", NULL},         {"", "nvml", "NVIDIAUUID"},
    {"intel", "ze", "LevelZeroUUID"},
};
enum { LIBRARIES = sizeof(libraries) / sizeof(libraries[0]) };

/* ROCm writes GPU-<16 digits>, hwloc the digits alone; an MI300A in partitions
 * has zeros. */
static void read_uuid(hwloc_obj_t osdev, int library, char *uuid)
{
    const char *name = libraries[library].uuid;
    const char *text = name ? hwloc_obj_get_info_by_name(osdev, name) : NULL;

    uuid[0] = '\0';
    if (!text || text[strspn(text, "0")] == '\0')
        return;
    snprintf(uuid, NODE_UUID, "%s%s",
             strcmp(libraries[library].library, "rsmi") == 0 ? "GPU-" : "",
             text);
}

/* Level Zero lists a card, ze0, and in one of its modes tiles of it, ze0.0 and
 * ze0.1; in the other its tiles are ze0 and ze1. */
static bool is_tile(hwloc_obj_t osdev)
{
    return osdev->name && strchr(osdev->name, '.') != NULL;
}

static int read_tiles(hwloc_obj_t card)
{
    const char *text = hwloc_obj_get_info_by_name(card, "LevelZeroSubdevices");
    int n = text ? atoi(text) : 0;

    return n > 1 && n <= NODE_PARTS_MOST ? n : 1;
}

static int read_listed(hwloc_obj_t pci, int library, struct node_part *parts)
{
    int n = 0, tiles = 0;

    for (hwloc_obj_t child = pci->io_first_child; child;
         child = child->next_sibling) {
        int number = child->type == HWLOC_OBJ_OS_DEVICE
                         ? node_found_by(child, libraries[library].library)
                         : -1;

        if (number < 0)
            continue;
        if (is_tile(child)) {
            tiles++;
            continue;
        }
        for (int i = read_tiles(child); i > 0 && n < NODE_PARTS_MOST; i--) {
            parts[n] = (struct node_part){.number = number, .file = -1};
            read_uuid(child, library, parts[n++].uuid);
        }
    }
    for (; n < tiles && n < NODE_PARTS_MOST; n++)
        parts[n] = (struct node_part){.number = -1, .file = -1};
    return n;
}

int node_find_parts(hwloc_obj_t pci, const char *vendor,
                    struct node_part *parts)
{
    struct node_part other[NODE_PARTS_MOST];
    int n = read_noted(pci, parts), tiles;

    if (n > 0)
        return n;
    for (int i = 0; i < LIBRARIES; i++) {
        int found = strcmp(libraries[i].vendor, vendor) == 0
                        ? read_listed(pci, i, other)
                        : 0;

        if (found <= n)
            continue;
        memcpy(parts, other, (size_t)found * sizeof(*parts));
        n = found;
    }
    tiles = node_gpu_tiles(pci->attr->pcidev.vendor_id,
                           pci->attr->pcidev.device_id);
    for (; n < tiles; n++)
        parts[n] = (struct node_part){.number = -1, .file = -1};
    return n;
}

int node_part_of(hwloc_obj_t osdev)
{
    size_t n = osdev->name ? strcspn(osdev->name, "0123456789") : 0;
    int part = 0;

    for (hwloc_obj_t child = osdev->parent->io_first_child;
         child && child != osdev; child = child->next_sibling)
        part += n > 0 && child->type == HWLOC_OBJ_OS_DEVICE && child->name &&
                strncmp(child->name, osdev->name, n) == 0 &&
                is_tile(child) == is_tile(osdev);
    return part;
}
