/* SPDX-License-Identifier: Apache-2.0 */
/* Reads names of devices from the system's pci.ids. */
#include "topology/node/pci_ids.h"

#include <string.h>

#include "topology/node/build.h"

/* Where distributions put the file; the first is hwdata's, the second that of
 * pciutils. */
static const char *const files[] = {"/usr/share/hwdata/pci.ids",
                                    "/usr/share/misc/pci.ids"};

void node_short_name(const char *name, char *to, size_t size)
{
    const char *open = strrchr(name, '['), *close = strrchr(name, ']');

    if (open && close && close > open + 1)
        snprintf(to, size, "%.*s", (int)(close - open - 1), open + 1);
    else
        snprintf(to, size, "%s", name);
}

/* A vendor's line begins with its id, a device's with a tab; two tabs begin a
 * board. */
bool node_find_name(FILE *file, unsigned vendor, unsigned device, char *to,
                    size_t size)
{
    bool is_vendor = false;
    char line[512];
    unsigned id;

    while (fgets(line, sizeof(line), file)) {
        int at = 0;

        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] != '\t' && line[0] != '#' && line[0] != '\0') {
            if (is_vendor)
                return false;
            is_vendor = sscanf(line, "%4x ", &id) == 1 && id == vendor;
        } else if (is_vendor && line[0] == '\t' && line[1] != '\t' &&
                   sscanf(line + 1, "%4x %n", &id, &at) == 1 && at > 0 &&
                   id == device) {
            node_short_name(line + 1 + at, to, size);
            return true;
        }
    }
    return false;
}

static bool look_up(unsigned vendor, unsigned device, char *to, size_t size)
{
    bool found = false;

    for (size_t i = 0; !found && i < sizeof(files) / sizeof(files[0]); i++) {
        FILE *file = fopen(files[i], "re");

        if (!file)
            continue;
        found = node_find_name(file, vendor, device, to, size);
        fclose(file);
    }
    return found;
}

static const char *vendor_name(unsigned vendor)
{
    if (vendor == 0x10de)
        return "NVIDIA ";
    if (vendor == 0x1002)
        return "AMD ";
    return vendor == 0x8086 ? "Intel " : "";
}

void node_name_gpu(unsigned vendor, unsigned device, char *to, size_t size)
{
    const char *known = node_gpu_model(vendor, device);

    to[0] = '\0';
    if (known[0])
        snprintf(to, size, "%s", known);
    else if (vendor && !look_up(vendor, device, to, size))
        snprintf(to, size, "%sGPU %04x:%04x", vendor_name(vendor), vendor,
                 device);
}
