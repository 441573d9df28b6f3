/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says in sysfs: widths and speeds on PCIe, AMD's counters of
 * memory errors, the ports of NICs and what they have counted. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/node/health.h"

enum { PATH_SIZE = 512, FOLDER_SIZE = 128, LINE_SIZE = 256, LANES_MOST = 32 };

/* The first line of root/FOLDER/NAME; "" with false where there is none. */
static bool read_line(const struct plait_health_of *of, const char *folder,
                      const char *name, char line[LINE_SIZE])
{
    char path[PATH_SIZE];
    FILE *file;

    line[0] = '\0';
    snprintf(path, sizeof(path), "%s/sys/%s/%s", of->root, folder, name);
    file = fopen(path, "re");
    if (!file)
        return false;
    if (!fgets(line, LINE_SIZE, file))
        line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return line[0];
}

static double read_number(const struct plait_health_of *of, const char *folder,
                          const char *name)
{
    char line[LINE_SIZE];

    return read_line(of, folder, name, line) ? strtod(line, NULL) : 0;
}

/* ---- PCIe ---- */

/* What the device can do, and the slot above it: a slot may have fewer lanes
 * than the device, for ever. 0: not known. */
static double most(const struct plait_health_of *of, const char *folder,
                   const char *name)
{
    char above[FOLDER_SIZE + 4];
    double own = read_number(of, folder, name), slot;

    snprintf(above, sizeof(above), "%s/..", folder);
    slot = read_number(of, above, name);
    return own > 0 && slot > 0 ? own < slot ? own : slot : 0;
}

/* `idle`: speed says nothing, as this device saves power by it. */
static void check_pcie(const struct plait_health_of *of, const char *folder,
                       const char *device, bool idle,
                       struct plait_health *health)
{
    double now = read_number(of, folder, "current_link_width"),
           full = most(of, folder, "max_link_width");

    /* Virtual functions report 0, 63 or 255 lanes. */
    if (now > 0 && full <= LANES_MOST && now < full)
        plait_health_add(health, PLAIT_HEALTH_BAD,
                         "%s: %.0f of %.0f PCIe lanes", device, now, full);
    now = read_number(of, folder, "current_link_speed");
    full = most(of, folder, "max_link_speed");
    if (!idle && now > 0 && now < full)
        plait_health_add(health, PLAIT_HEALTH_BAD,
                         "%s: PCIe runs at %.0f of %.0f GT/s", device, now,
                         full);
}

/* ---- AMD's GPUs ---- */

/* "ue: 3" of a block of the GPU. */
static unsigned long long read_uncorrected(const struct plait_health_of *of,
                                           const char *folder,
                                           const char *block)
{
    unsigned long long count = 0;
    char line[LINE_SIZE], name[64];

    snprintf(name, sizeof(name), "ras/%s_err_count", block);
    return read_line(of, folder, name, line) &&
                   sscanf(line, "ue: %llu", &count) == 1
               ? count
               : 0;
}

/* Lines "0x27f5d43 : 0x1000 : R": R is done with, P waits for the next reset, F
 * could not be taken out of use. */
static void check_pages(const struct plait_health_of *of, const char *folder,
                        const char *gpu, struct plait_health *health)
{
    int waiting = 0, failed = 0;
    char path[PATH_SIZE], flag;
    FILE *file;

    snprintf(path, sizeof(path), "%s/sys/%s/ras/gpu_vram_bad_pages", of->root,
             folder);
    file = fopen(path, "re");
    while (file && fscanf(file, " %*[^: \n] : %*[^: \n] : %c", &flag) == 1) {
        waiting += flag == 'P';
        failed += flag == 'F';
    }
    if (file)
        fclose(file);
    if (failed)
        plait_health_add(health, PLAIT_HEALTH_BAD,
                         "%s: %d broken pages of memory are in use", gpu,
                         failed);
    else if (waiting)
        plait_health_add(health, PLAIT_HEALTH_BAD,
                         "%s: %d broken pages of memory are retired at the "
                         "next reset",
                         gpu, waiting);
}

static void check_amd(const struct plait_health_of *of, const char *folder,
                      const char *gpu, struct plait_health *health)
{
    static const char *const blocks[] = {"umc", "gfx", "sdma", "xgmi_wafl"};
    double total = read_number(of, folder, "mem_info_vram_total"),
           used = read_number(of, folder, "mem_info_vram_used");

    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        unsigned long long n = read_uncorrected(of, folder, blocks[i]);

        if (n)
            plait_health_add(health, PLAIT_HEALTH_BAD,
                             "%s: %llu uncorrected %s errors since its "
                             "driver was loaded",
                             gpu, n, blocks[i]);
    }
    check_pages(of, folder, gpu, health);
    if (used > 0.1 * total)
        plait_health_add(health, PLAIT_HEALTH_BUSY,
                         "%s: %.1f of %.1f GiB of its memory are in use", gpu,
                         used / 1073741824, total / 1073741824);
}

/* ---- NICs ---- */

/* The folder of a port below /sys; `port`: that of InfiniBand and RoCE, else
 * the network interface itself. */
static bool find_port(const struct plait_health_of *of, const char *nic,
                      char folder[FOLDER_SIZE], bool *port)
{
    char line[LINE_SIZE];

    if (!*nic || strchr(nic, '/'))
        return false;
    snprintf(folder, FOLDER_SIZE, "class/infiniband/%.31s/ports/1", nic);
    *port = read_line(of, folder, "state", line);
    if (*port)
        return true;
    snprintf(folder, FOLDER_SIZE, "class/net/%.31s", nic);
    return read_line(of, folder, "operstate", line);
}

double plait_health_nic_rate(const char *root, const char *nic)
{
    const struct plait_health_of of = {.root = root};
    char folder[FOLDER_SIZE];
    bool port;

    if (!find_port(&of, nic, folder, &port))
        return 0;
    /* "400 Gb/sec (4X NDR)"; an interface has Mbit/s, or -1. */
    if (port)
        return read_number(&of, folder, "rate") * 1e9 / 8;
    return read_number(&of, folder, "speed") > 0
               ? read_number(&of, folder, "speed") * 1e6 / 8
               : 0;
}

/* "DOWN" of "1: DOWN" */
static const char *word(const char *state)
{
    const char *colon = strstr(state, ": ");

    return colon ? colon + 2 : *state ? state : "unknown";
}

/* "4: ACTIVE" of a port, "up" or "unknown" of an interface (lo). */
static void check_nic(const struct plait_health_of *of, const char *nic,
                      struct plait_health *health)
{
    char folder[FOLDER_SIZE], state[LINE_SIZE], physical[LINE_SIZE],
        device[FOLDER_SIZE];
    bool port;

    if (!find_port(of, nic, folder, &port))
        return;
    read_line(of, folder, port ? "state" : "operstate", state);
    if (port && !strstr(state, "ACTIVE")) {
        read_line(of, folder, "phys_state", physical);
        plait_health_add(health, PLAIT_HEALTH_BAD,
                         "%.31s: its port is %.30s, %.30s", nic, word(state),
                         word(physical));
    } else if (!port && strstr(state, "down")) {
        plait_health_add(health, PLAIT_HEALTH_BAD, "%.31s: its link is down",
                         nic);
    }
    snprintf(device, sizeof(device), "class/%s/%.31s/device",
             port ? "infiniband" : "net", nic);
    check_pcie(of, device, nic, false, health);
}

/* Links that are sound lose a symbol now and then. */
static const struct {
    const char *port, *interface; /* file names; NULL: it has none */
    unsigned sound;               /* so many are no fault */
    const char *text;
} counters[PLAIT_HEALTH_COUNTERS] = {
    {"counters/symbol_error", "statistics/rx_crc_errors", 10, "symbol errors"},
    {"counters/link_error_recovery", NULL, 0, "recoveries of the link"},
    {"counters/link_downed", "carrier_down_count", 0, "losses of the link"},
    {"counters/port_rcv_errors", "statistics/rx_errors", 10, "receive errors"},
    {"counters/local_link_integrity_errors", NULL, 0, "link integrity errors"},
    {"counters/excessive_buffer_overrun_errors", NULL, 10, "buffer overruns"},
    {NULL, "statistics/tx_errors", 10, "send errors"},
};

void plait_health_count(const struct plait_health_of *of,
                        struct plait_health_counts *counts)
{
    memset(counts, 0, sizeof(*counts));
    for (int i = 0; i < of->nnics && i < PLAIT_HEALTH_NICS; i++) {
        char folder[FOLDER_SIZE];
        bool port;

        if (!find_port(of, of->nics[i], folder, &port))
            continue;
        for (int k = 0; k < PLAIT_HEALTH_COUNTERS; k++) {
            const char *name = port ? counters[k].port : counters[k].interface;
            char line[LINE_SIZE];

            if (name && read_line(of, folder, name, line))
                counts->at[i][k] = strtoull(line, NULL, 10);
        }
    }
}

void plait_health_compare(const struct plait_health_of *of,
                          const struct plait_health_counts *before,
                          const struct plait_health_counts *now,
                          struct plait_health *health)
{
    for (int i = 0; i < of->nnics && i < PLAIT_HEALTH_NICS; i++)
        for (int k = 0; k < PLAIT_HEALTH_COUNTERS; k++)
            if (now->at[i][k] > before->at[i][k] + counters[k].sound)
                plait_health_add(health, PLAIT_HEALTH_BAD,
                                 "%.31s: %llu %s while it was measured",
                                 of->nics[i], now->at[i][k] - before->at[i][k],
                                 counters[k].text);
}

void node_health_sysfs(const struct plait_health_of *of,
                       struct plait_health *health)
{
    for (int i = 0; i < of->ngpus; i++) {
        char folder[FOLDER_SIZE], vendor[LINE_SIZE], gpu[40];

        snprintf(gpu, sizeof(gpu), "GPU %.31s", of->gpus[i]);
        snprintf(folder, sizeof(folder), "bus/pci/devices/%.31s", of->gpus[i]);
        check_pcie(of, folder, gpu, true, health);
        if (read_line(of, folder, "vendor", vendor) &&
            strcmp(vendor, "0x1002") == 0)
            check_amd(of, folder, gpu, health);
    }
    for (int i = 0; i < of->nnics; i++)
        check_nic(of, of->nics[i], health);
}
