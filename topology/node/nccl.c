/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <expat.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/node/build.h"
#include "topology/node/parts.h"
#include "topology/node/pci_ids.h"

/* NCCL's topology XML, and RCCL's, which differs only in its link element:
 * system > cpu > pci > ... > pci > gpu > nvlink|xgmi, and nic > net under a pci
 * or a cpu. Cloud providers ship skeletons without gpu and net elements, in
 * which only the PCI class tells what a device is. */

#define DEPTH_MOST 64
#define CLASS_BRIDGE 0x0604
#define CLASS_NVSWITCH 0x0680

enum element { SYSTEM, CPU, PCI, GPU, NIC, NET, LINK, OTHER };

/* An open element, and what its device is known to be so far. */
struct open_element {
    enum element kind;
    void *id; /* tells one cpu or pci element from another; never followed */
    int has_pci, has_net;
    int ngpus; /* of a pci: a device may be counted as several */
    int numbers[NODE_PARTS_MOST]; /* theirs, -1 unknown */
    unsigned class_id, vendor, device;
    int sm, gcn; /* of the gpu inside, 0 unknown */
    char busid[16];
};

struct reader {
    const char *name;
    struct plait_error *err;
    XML_Parser parser;
    int failed;
    struct node_builder builder;
    int depth;
    struct open_element open[DEPTH_MOST];
    int numa; /* of the open cpu */
    int nnumas, *numas;
    int nhosts;
    char (*hosts)[32]; /* in the order of the file; the first one counts */
    int other;         /* depth of an open cpu of another host, 0 none */
    size_t nids;       /* ids given out so far */
    int nlinks;
    struct node_link *links;
};

static void refuse_input(struct reader *reader, const char *what,
                         const char *value)
{
    if (reader->failed)
        return;
    plait_errorf(reader->err, "%s:%lu: %s%s%s%s", reader->name,
                 (unsigned long)XML_GetCurrentLineNumber(reader->parser), what,
                 value ? " '" : "", value ? value : "", value ? "'" : "");
    reader->failed = 1;
    XML_StopParser(reader->parser, XML_FALSE);
}

static const char *attribute(const char **attrs, const char *name)
{
    for (int i = 0; attrs[i]; i += 2) {
        if (strcmp(attrs[i], name) == 0)
            return attrs[i + 1];
    }
    return NULL;
}

/* A number between `least` and `most`, `missing` where there is none. */
static long read_number(struct reader *reader, const char **attrs,
                        const char *name, int base, long least, long most,
                        long missing)
{
    const char *text = attribute(attrs, name);
    char *end;
    long value;

    if (!text || text[0] == '\0')
        return missing;
    errno = 0;
    value = strtol(text, &end, base);
    if (errno || *end != '\0' || value < least || value > most) {
        char what[64];

        snprintf(what, sizeof(what), "%s is not a number in its range:", name);
        refuse_input(reader, what, text);
        return missing;
    }
    return value;
}

static void busid_of(struct reader *reader, const char *text, char *busid)
{
    unsigned domain, bus, dev, func;

    if (!text || node_parse_busid(text, &domain, &bus, &dev, &func))
        refuse_input(reader, "not a PCI bus id like 0000:07:00.0:",
                     text ? text : "(none)");
    else
        node_format_busid(domain, bus, dev, func, busid);
}

/* The innermost open element of this kind, or NULL. */
static struct open_element *enclosing(struct reader *reader, enum element kind)
{
    for (int i = reader->depth - 1; i >= 0; i--) {
        if (reader->open[i].kind == kind)
            return &reader->open[i];
    }
    return NULL;
}

/* Where the device of open element `upto` is attached. */
static void locate(struct reader *reader, const struct open_element *upto,
                   struct node_locus *locus)
{
    memset(locus, 0, sizeof(*locus));
    locus->numa = reader->numa;
    for (const struct open_element *at = reader->open; at < upto; at++) {
        if (at->kind == CPU)
            locus->host = at->id;
        else if (at->kind == PCI && locus->nbridges < NODE_BRIDGES_MOST)
            locus->bridges[locus->nbridges++] = at->id;
    }
}

/* Which host a cpu belongs to. Where NVLink spans hosts, NCCL dumps all of
 * them side by side, with the same bus ids. */
static int find_host(struct reader *reader, const char *hash)
{
    char(*bigger)[32];
    int i;

    if (!hash)
        return 0;
    for (i = 0; i < reader->nhosts; i++) {
        if (strncmp(reader->hosts[i], hash, sizeof(*bigger) - 1) == 0)
            return i;
    }
    bigger = realloc(reader->hosts, (size_t)(i + 1) * sizeof(*bigger));
    if (!bigger) {
        refuse_input(reader, "out of memory", NULL);
        return 0;
    }
    reader->hosts = bigger;
    snprintf(reader->hosts[i], sizeof(*bigger), "%s", hash);
    reader->builder.node->hosts = ++reader->nhosts;
    return i;
}

static void start_cpu(struct reader *reader, const char **attrs)
{
    const char *affinity = attribute(attrs, "affinity");
    struct plait_node *node = reader->builder.node;
    int *bigger;

    reader->numa =
        (int)read_number(reader, attrs, "numaid", 10, -1, 1 << 20, -1);
    if (find_host(reader, attribute(attrs, "host_hash")) > 0) {
        reader->other = reader->depth;
        return;
    }
    for (int i = 0; affinity && affinity[i]; i++) {
        const char digit[2] = {affinity[i], '\0'};

        if (affinity[i] != ',')
            node->pus += __builtin_popcount((unsigned)strtoul(digit, NULL, 16));
    }
    /* A virtual machine without NUMA: nothing is known of its nodes. */
    if (reader->numa < 0)
        return;
    for (int i = 0; i < reader->nnumas; i++) {
        if (reader->numas[i] == reader->numa)
            return;
    }
    bigger =
        realloc(reader->numas, (size_t)(reader->nnumas + 1) * sizeof(*bigger));
    if (!bigger) {
        refuse_input(reader, "out of memory", NULL);
        return;
    }
    reader->numas = bigger;
    reader->numas[reader->nnumas++] = reader->numa;
    node->numa_nodes = reader->nnumas;
}

static void start_pci(struct reader *reader, const char **attrs)
{
    struct open_element *self = &reader->open[reader->depth];
    struct open_element *parent = enclosing(reader, PCI);

    if (!enclosing(reader, CPU)) {
        refuse_input(reader, "a <pci> outside of any <cpu>", NULL);
        return;
    }
    if (parent)
        parent->has_pci = 1;
    busid_of(reader, attribute(attrs, "busid"), self->busid);
    /* "0x030200": class, subclass, programming interface */
    self->class_id =
        (unsigned)read_number(reader, attrs, "class", 16, 0, 0xffffff, 0) >> 8;
    self->vendor =
        (unsigned)read_number(reader, attrs, "vendor", 16, 0, 0xffff, 0);
    self->device =
        (unsigned)read_number(reader, attrs, "device", 16, 0, 0xffff, 0);
}

static void start_gpu(struct reader *reader, const char **attrs)
{
    struct open_element *self = &reader->open[reader->depth];
    struct open_element *pci = enclosing(reader, PCI);

    if (!pci) {
        refuse_input(reader, "a <gpu> outside of any <pci>", NULL);
        return;
    }
    self->sm = (int)read_number(reader, attrs, "sm", 10, 0, 1 << 20, 0);
    self->gcn = node_parse_gcn(attribute(attrs, "gcn"));
    if (pci->ngpus == NODE_PARTS_MOST) {
        refuse_input(reader, "too many <gpu> in one <pci>", NULL);
        return;
    }
    pci->numbers[pci->ngpus++] =
        (int)read_number(reader, attrs, "dev", 10, -1, 4095, -1);
    pci->sm = self->sm;
    pci->gcn = self->gcn;
}

static void start_link(struct reader *reader, const char **attrs, int is_xgmi)
{
    struct open_element *gpu = enclosing(reader, GPU);
    struct open_element *pci = enclosing(reader, PCI);
    struct node_link *bigger, link = {0};
    unsigned class_id;

    if (!gpu || !pci) {
        refuse_input(reader, "a link outside of any <gpu>", NULL);
        return;
    }
    snprintf(link.from, sizeof(link.from), "%s", pci->busid);
    link.part = pci->ngpus - 1;
    link.count = (int)read_number(reader, attrs, "count", 10, 0, 4096, 1);
    class_id =
        (unsigned)read_number(reader, attrs, "tclass", 16, 0, 0xffffff, 0) >> 8;
    link.to_switch = class_id == CLASS_NVSWITCH;
    /* Inside a virtual machine a switch has no address of its own. */
    if (!link.to_switch)
        busid_of(reader, attribute(attrs, "target"), link.to);
    link.gbps = is_xgmi ? node_xgmi_gbps(gpu->gcn) : node_nvlink_gbps(gpu->sm);
    bigger =
        realloc(reader->links, (size_t)(reader->nlinks + 1) * sizeof(*bigger));
    if (!bigger) {
        refuse_input(reader, "out of memory", NULL);
        return;
    }
    reader->links = bigger;
    reader->links[reader->nlinks++] = link;
}

/* NCCL lists a NIC that no PCI device carries once under every cpu. */
static bool is_listed(const struct plait_node *node, const char *name)
{
    for (int i = 0; i < node->nnics; i++) {
        if (node->nics[i].busid[0] == '\0' &&
            strcmp(node->nics[i].name, name) == 0)
            return true;
    }
    return false;
}

static void add_nic(struct reader *reader, const struct open_element *pci,
                    const char *name, double gbps)
{
    struct plait_nic nic = {0};
    struct node_locus locus;

    locate(reader, pci ? pci : &reader->open[reader->depth], &locus);
    snprintf(nic.name, sizeof(nic.name), "%s", name);
    snprintf(nic.busid, sizeof(nic.busid), "%s", pci ? pci->busid : "");
    nic.numa = locus.numa;
    nic.gbps = gbps;
    nic.kind = node_nic_kind(name, pci ? pci->vendor : 0);
    if (node_builder_add_nic(&reader->builder, &nic, &locus))
        refuse_input(reader, strerror(errno), NULL);
}

static void start_net(struct reader *reader, const char **attrs)
{
    struct open_element *pci = enclosing(reader, PCI);
    const char *name = attribute(attrs, "name");
    long mbps = read_number(reader, attrs, "speed", 10, -1, 1L << 40, 0);

    if (!enclosing(reader, CPU)) {
        refuse_input(reader, "a <net> outside of any <cpu>", NULL);
        return;
    }
    if (pci)
        pci->has_net = 1;
    if (!name || name[0] == '\0')
        name = pci ? pci->busid : "net";
    if (pci || !is_listed(reader->builder.node, name))
        add_nic(reader, pci, name, mbps > 0 ? (double)mbps / 8000 : 0);
}

static enum element kind_of(const char *name)
{
    static const char *const names[] = {"system", "cpu", "pci",
                                        "gpu",    "nic", "net"};

    for (int i = SYSTEM; i <= NET; i++) {
        if (strcmp(name, names[i]) == 0)
            return (enum element)i;
    }
    if (strcmp(name, "nvlink") == 0 || strcmp(name, "xgmi") == 0)
        return LINK;
    return OTHER;
}

static void XMLCALL start_element(void *arg, const char *name,
                                  const char **attrs)
{
    struct reader *reader = arg;
    struct open_element *self;

    if (reader->failed)
        return;
    if (reader->depth == DEPTH_MOST) {
        refuse_input(reader, "elements nested too deeply", NULL);
        return;
    }
    self = &reader->open[reader->depth];
    memset(self, 0, sizeof(*self));
    self->kind = kind_of(name);
    self->id = (void *)(uintptr_t)++reader->nids;
    if (reader->depth == 0 && strcmp(name, "topology") == 0)
        refuse_input(reader,
                     "this is an hwloc topology, not NCCL's: give it with",
                     "--hwloc-xml");
    else if ((reader->depth == 0) != (self->kind == SYSTEM))
        refuse_input(reader,
                     "not an NCCL topology: expected <system> outermost, not",
                     name);
    else if (reader->other)
        ; /* not of this node */
    else if (self->kind == CPU)
        start_cpu(reader, attrs);
    else if (self->kind == PCI)
        start_pci(reader, attrs);
    else if (self->kind == GPU)
        start_gpu(reader, attrs);
    else if (self->kind == NET)
        start_net(reader, attrs);
    else if (self->kind == LINK)
        start_link(reader, attrs, strcmp(name, "xgmi") == 0);
    reader->depth++;
}

/* NCCL's files are about NVIDIA's GPUs, RCCL's about AMD's; where the ids
 * are missing, a gcn attribute or AMD's classes tell. */
static const char *gpu_vendor(const struct open_element *pci)
{
    const char *vendor =
        node_gpu_vendor(pci->class_id, pci->vendor, pci->device);

    if (vendor && vendor[0])
        return vendor;
    if (pci->gcn || pci->class_id == 0x0380 || pci->class_id == 0x1200)
        return "amd";
    if (pci->ngpus || (pci->vendor == 0 && pci->class_id >> 8 == 3))
        return "nvidia";
    return NULL;
}

static void add_parts(struct reader *reader, const struct open_element *pci,
                      const struct plait_gpu *gpu,
                      const struct node_locus *locus)
{
    int n = pci->ngpus;

    if (n == 0)
        n = node_gpu_tiles(pci->vendor, pci->device);
    for (int i = 0; i < n; i++) {
        struct plait_gpu part = *gpu;

        part.part = i;
        part.parts = n;
        part.number = i < pci->ngpus ? pci->numbers[i] : -1;
        part.file = -1;
        if (node_builder_add_gpu(&reader->builder, &part, locus))
            refuse_input(reader, strerror(errno), NULL);
    }
}

static void end_pci(struct reader *reader, const struct open_element *pci)
{
    const char *vendor = gpu_vendor(pci);
    struct plait_gpu gpu = {0};
    struct node_locus locus;

    if (pci->has_pci)
        return;
    if (vendor) {
        locate(reader, pci, &locus);
        snprintf(gpu.busid, sizeof(gpu.busid), "%s", pci->busid);
        snprintf(gpu.vendor, sizeof(gpu.vendor), "%s", vendor);
        node_name_gpu(pci->vendor, pci->device, gpu.model, sizeof(gpu.model));
        gpu.vendor_id = pci->vendor;
        gpu.device_id = pci->device;
        gpu.numa = locus.numa;
        add_parts(reader, pci, &gpu, &locus);
    } else if (!pci->has_net && pci->class_id >> 8 == 2) {
        add_nic(reader, pci, pci->busid, 0);
    } else if (!pci->has_net && pci->class_id == 0) {
        reader->builder.node->unclassified++;
    }
}

static void XMLCALL end_element(void *arg, const char *name)
{
    struct reader *reader = arg;

    (void)name;
    if (reader->failed)
        return;
    reader->depth--;
    if (reader->other) {
        if (reader->depth == reader->other)
            reader->other = 0;
    } else if (reader->open[reader->depth].kind == PCI) {
        end_pci(reader, &reader->open[reader->depth]);
    }
}

static int read_xml(struct reader *reader, const char *text, size_t size)
{
    if (XML_Parse(reader->parser, text, (int)size, 1) == XML_STATUS_OK)
        return 0;
    if (!reader->failed)
        plait_errorf(reader->err, "%s:%lu: %s", reader->name,
                     (unsigned long)XML_GetCurrentLineNumber(reader->parser),
                     XML_ErrorString(XML_GetErrorCode(reader->parser)));
    return -1;
}

struct plait_node *plait_node_parse_nccl(const char *name, const char *text,
                                         size_t size, struct plait_error *err)
{
    struct reader *reader = calloc(1, sizeof(*reader));
    struct plait_node *node = NULL;

    if (size > NODE_NCCL_MOST) {
        plait_errorf(err, "%s: too large for a topology", name);
        goto out;
    }
    if (!reader || !(reader->parser = XML_ParserCreate(NULL)) ||
        node_builder_init(&reader->builder, 0)) {
        plait_errorf(err, "%s: out of memory", name);
        goto out;
    }
    reader->name = name;
    reader->err = err;
    reader->numa = -1;
    XML_SetUserData(reader->parser, reader);
    XML_SetElementHandler(reader->parser, start_element, end_element);
    if (read_xml(reader, text, size))
        goto out;
    if (node_builder_sort(&reader->builder) ||
        node_builder_join(&reader->builder, reader->links, reader->nlinks) ||
        !(node = node_builder_finish(&reader->builder)))
        plait_errorf(err, "%s: out of memory", name);
out:
    if (reader) {
        node_builder_abandon(&reader->builder);
        if (reader->parser)
            XML_ParserFree(reader->parser);
        free(reader->hosts);
        free(reader->numas);
        free(reader->links);
        free(reader);
    }
    return node;
}
