/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_MADE_MACHINE_H
#define PLAIT_TESTS_UNIT_MADE_MACHINE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "temp_path.h"
#include "topology/node/node.h"

/* hwloc XML of machines that nobody has recorded, from a description of a few
 * words. Cores have one PU and are numbered through. */
struct made_machine {
    int packages, numas, caches, cores; /* packages; of each: NUMA nodes; of
                                           each: L3 caches; of each: cores */
    /* "" or "hbm": each NUMA node has a second one with the same cores; or
     * "memory": two NUMA nodes without cores */
    const char *more;
    /* "PLACE BUSID CLASS VENDOR:DEVICE NAME[*INFO=VALUE].. ; ...": a PCI
     * device below "m" (the machine), "p1" (package 1), "n3" or "l6" (cache
     * 6), with its OS devices; "=INFO=VALUE" is one of the PCI device */
    const char *devices;
};

struct made_state {
    const struct made_machine *machine;
    FILE *out;
    int gp, nnodes, pu;
    unsigned long long all_nodes;
};

static inline void made_sets(struct made_state *s, int first, int n,
                             unsigned long long nodes)
{
    char text[2048], *at = text;

    /* 32 bits at a time, the highest first */
    for (int word = (first + n - 1) / 32; word >= 0; word--) {
        unsigned bits = 0;

        for (int i = 0; i < 32; i++)
            if (word * 32 + i >= first && word * 32 + i < first + n)
                bits |= 1u << i;
        at += sprintf(at, "%s0x%08x", at == text ? "" : ",", bits);
    }
    if (n == 0)
        strcpy(text, "0x0");
    fprintf(s->out,
            " cpuset=\"%s\" complete_cpuset=\"%s\" nodeset=\"0x%llx\" "
            "complete_nodeset=\"0x%llx\" gp_index=\"%d\"",
            text, text, nodes, nodes, ++s->gp);
}

static inline int made_type(const char *name)
{
    static const struct {
        const char *begin;
        int type;
    } types[] = {{"rsmi", 1}, {"nvml", 1}, {"cuda", 5},  {"ze", 5},
                 {"mlx", 3},  {"cxi", 3},  {"rdmap", 3}, {"hfi", 3}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strncmp(name, types[i].begin, strlen(types[i].begin)) == 0)
            return types[i].type;
    return 2;
}

static inline void made_infos(struct made_state *s, char *text)
{
    char *at, *save = NULL;

    for (at = strtok_r(text, "*", &save); at; at = strtok_r(NULL, "*", &save)) {
        char *value = strchr(at, '=');

        *value++ = '\0';
        for (char *p = value; *p; p++)
            *p = *p == '_' ? ' ' : *p;
        fprintf(s->out, "<info name=\"%s\" value=\"%s\"/>", at, value);
    }
}

static inline void made_device(struct made_state *s, char *text)
{
    char *save = NULL, *busid = strtok_r(text, " ", &save);
    char *class_id = strtok_r(NULL, " ", &save), *word;
    char *ids = strtok_r(NULL, " ", &save);
    unsigned domain, bus;

    sscanf(busid, "%x:%x", &domain, &bus);
    fprintf(s->out,
            "<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"0-1\" "
            "depth=\"0\" bridge_pci=\"%04x:[%02x-%02x]\">",
            ++s->gp, domain, bus, bus);
    fprintf(s->out,
            "<object type=\"PCIDev\" gp_index=\"%d\" pci_busid=\"%s\" "
            "pci_type=\"%s [%s] [0000:0000] 00\" pci_link_speed=\"0\">",
            ++s->gp, busid, class_id, ids);
    while ((word = strtok_r(NULL, " ", &save))) {
        char *infos = strchr(word, '*');

        if (word[0] == '=') {
            made_infos(s, word + 1);
            continue;
        }
        if (infos)
            *infos++ = '\0';
        fprintf(s->out,
                "<object type=\"OSDev\" gp_index=\"%d\" name=\"%s\" "
                "osdev_type=\"%d\">",
                ++s->gp, word, made_type(word));
        if (infos)
            made_infos(s, infos);
        fprintf(s->out, "</object>");
    }
    fprintf(s->out, "</object></object>\n");
}

static inline void made_devices(struct made_state *s, const char *place)
{
    char *text = strdup(s->machine->devices), *save = NULL;
    size_t n = strlen(place);

    for (char *at = strtok_r(text, ";", &save); at;
         at = strtok_r(NULL, ";", &save)) {
        at += strspn(at, " ");
        if (strncmp(at, place, n) == 0 && at[n] == ' ')
            made_device(s, at + n + 1);
    }
    free(text);
}

static inline void made_begin(struct made_state *s, const char *type, int index)
{
    fprintf(s->out, "<object type=\"%s\" os_index=\"%d\"", type, index);
}

static inline void made_numa(struct made_state *s, int index, int first, int n)
{
    made_begin(s, "NUMANode", index);
    made_sets(s, first, n, 1ull << index);
    fprintf(s->out, " local_memory=\"1000000000\"/>\n");
}

static inline void made_cache(struct made_state *s, int cache,
                              unsigned long long nodes)
{
    const struct made_machine *m = s->machine;
    char place[16];

    made_begin(s, "L3Cache", cache);
    made_sets(s, s->pu, m->cores, nodes);
    fprintf(s->out, " cache_size=\"1\" depth=\"3\" cache_linesize=\"64\" "
                    "cache_associativity=\"16\" cache_type=\"0\">\n");
    for (int i = 0; i < m->cores; i++, s->pu++) {
        made_begin(s, "Core", s->pu);
        made_sets(s, s->pu, 1, nodes);
        fprintf(s->out, ">");
        made_begin(s, "PU", s->pu);
        made_sets(s, s->pu, 1, nodes);
        fprintf(s->out, "/></object>\n");
    }
    snprintf(place, sizeof(place), "l%d", cache);
    made_devices(s, place);
    fprintf(s->out, "</object>\n");
}

/* A group stands for a NUMA node, which is a child of its own. */
static inline void made_node(struct made_state *s, int numa, int has_hbm)
{
    const struct made_machine *m = s->machine;
    int n = m->caches * m->cores, hbm = numa + m->packages * m->numas;
    unsigned long long nodes = 1ull << numa | (has_hbm ? 1ull << hbm : 0);
    char place[16];

    fprintf(s->out, "<object type=\"Group\" kind=\"0\" subkind=\"0\"");
    made_sets(s, s->pu, n, nodes);
    fprintf(s->out, ">\n");
    made_numa(s, numa, s->pu, n);
    if (has_hbm)
        made_numa(s, hbm, s->pu, n);
    for (int i = 0; i < m->caches; i++)
        made_cache(s, numa * m->caches + i, nodes);
    snprintf(place, sizeof(place), "n%d", numa);
    made_devices(s, place);
    fprintf(s->out, "</object>\n");
}

static inline void made_write(struct made_state *s)
{
    const struct made_machine *m = s->machine;
    int each = m->numas * m->caches * m->cores, nodes = m->packages * m->numas;
    int has_hbm = strcmp(m->more, "hbm") == 0;
    int has_memory = strcmp(m->more, "memory") == 0;
    unsigned long long own = (1ull << m->numas) - 1, all;
    char place[16];

    all = (1ull << (nodes * (1 + has_hbm) + 2 * has_memory)) - 1;
    fprintf(s->out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE "
                    "topology SYSTEM \"hwloc2.dtd\">\n<topology "
                    "version=\"2.0\">\n");
    made_begin(s, "Machine", 0);
    made_sets(s, 0, m->packages * each, all);
    fprintf(s->out, ">\n");
    for (int i = 0; has_memory && i < 2; i++)
        made_numa(s, nodes + i, 0, 0);
    for (int p = 0; p < m->packages; p++) {
        made_begin(s, "Package", p);
        made_sets(s, p * each, each,
                  own << p * m->numas |
                      (has_hbm ? own << (nodes + p * m->numas) : 0));
        fprintf(s->out, ">\n");
        for (int i = 0; i < m->numas; i++)
            made_node(s, p * m->numas + i, has_hbm);
        snprintf(place, sizeof(place), "p%d", p);
        made_devices(s, place);
        fprintf(s->out, "</object>\n");
    }
    made_devices(s, "m");
    fprintf(s->out, "</object></topology>\n");
}

static inline struct plait_node *made_node_create(const struct made_machine *m,
                                                  struct plait_error *err)
{
    struct made_state s = {.machine = m};
    char path[TEMP_PATH];
    int fd = mkstemp(temp_path(path, "machine"));
    struct plait_node *node;

    s.out = fdopen(fd, "w");
    made_write(&s);
    fclose(s.out);
    node = plait_node_create_xml(path, err);
    unlink(path);
    return node;
}

#endif
