/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/cli/commands.h"
#include "topology/cli/topo_draw.h"
#include "topology/node/domain.h"
#include "topology/node/node.h"

/* plait topo: the GPUs, links, NICs and cores of a machine. */

/* A driver may take long to start its GPUs, or not answer. */
enum { DOMAIN_SECONDS = 20 };

struct topo_request {
    const char *hwloc_xml;
    const char *nccl_xml;
    const char *synthetic;
    const char *svg;
    int json, domain;
};

static int print_help(void)
{
    printf("Usage: plait topo [OPTION...]\n\n"
           "Show the GPUs, links, NICs and cores of this machine, or of one "
           "described by\na file.\n\n"
           "  --hwloc-xml FILE   read an hwloc XML (lstopo FILE.xml)\n"
           "  --nccl-xml FILE    read an NCCL topology (NCCL_TOPO_DUMP_FILE)\n"
           "  --synthetic TEXT   make up a machine (\"pack:2 core:8 pu:2\")\n"
           "  --domain           print the line of this node in a file of the "
           "fabric:\n"
           "                     its switches in the Slurm job, and its NVLink "
           "domain\n"
           "  --json             print one JSON document\n"
           "  --svg FILE         draw a picture into FILE (- for standard "
           "output)\n"
           "  --help             print this\n");
    return PLAIT_EXIT_GOOD;
}

static struct plait_node *create_node(const struct topo_request *request,
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

static void print_svg(const void *node, FILE *out)
{
    topo_print_svg(node, out);
}

/* "SWITCH...DOMAIN.NODE switch...block.node": Slurm's address of this node in a
 * job, as of 22.05, with the NVLink domain before its name. */
static int print_domain(void)
{
    const char *address = getenv("SLURM_TOPOLOGY_ADDR"),
               *pattern = getenv("SLURM_TOPOLOGY_ADDR_PATTERN"),
               *name = getenv("SLURMD_NODENAME");
    struct plait_domain domain;
    char host[256] = "";
    const char *dot, *end;

    if (plait_domain_ask(DOMAIN_SECONDS, &domain) < 0)
        return plait_cmd_failed(
            "topo: NVML: %s", errno == ETIMEDOUT ? "the driver does not answer"
                                                 : strerror(errno));
    if (domain.state != PLAIT_DOMAIN_READY)
        return plait_cmd_failed("topo: NVLink joins this machine's GPUs with "
                                "no other node's (see plait doctor)");
    if (!name && gethostname(host, sizeof(host) - 1) == 0) {
        host[strcspn(host, ".")] = '\0';
        name = host;
    }
    /* A tree's address ends in .NODE, as its pattern in .node. Slurm's own
     * blocks are left to Slurm. */
    dot = address ? strrchr(address, '.') : NULL;
    end = pattern && !strstr(pattern, "block") ? strrchr(pattern, '.') : NULL;
    if (dot && end)
        printf("%.*s.", (int)(dot - address), address);
    domain.name[strcspn(domain.name, ".")] = '-'; /* a dot ends a name */
    printf("%s.%s ", domain.name, name ? name : "");
    if (dot && end)
        printf("%.*s.", (int)(end - pattern), pattern);
    printf("block.node\n");
    return PLAIT_EXIT_GOOD;
}

static int run_topo(const struct topo_request *request)
{
    struct plait_error err;
    struct plait_node *node = create_node(request, &err);
    int rc = PLAIT_EXIT_GOOD;

    setlocale(LC_CTYPE, ""); /* tells whether the terminal has UTF-8 */
    if (!node)
        return plait_cmd_failed("%s", err.text);
    if (request->json)
        rc = plait_cmd_json(topo_to_json(node));
    else if (request->svg)
        rc = plait_cmd_write(request->svg, print_svg, node);
    else
        topo_print_text(node, strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                        stdout);
    plait_node_destroy(node);
    return rc;
}

int plait_cmd_topo(int argc, char **argv)
{
    enum { HWLOC_XML = 256, NCCL_XML, SYNTHETIC, JSON, SVG, DOMAIN };
    static const struct option options[] = {
        {"hwloc-xml", required_argument, NULL, HWLOC_XML},
        {"nccl-xml", required_argument, NULL, NCCL_XML},
        {"synthetic", required_argument, NULL, SYNTHETIC},
        {"domain", no_argument, NULL, DOMAIN},
        {"json", no_argument, NULL, JSON},
        {"svg", required_argument, NULL, SVG},
        {"help", no_argument, NULL, 'h'},
        {0}};
    struct topo_request request = {0};
    int sources = 0, opt;

    opterr = 0;
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
        case DOMAIN:
            request.domain = 1;
            break;
        case SVG:
            request.svg = optarg;
            break;
        case 'h':
            return print_help();
        default:
            return plait_cmd_refuse_option(options, "h", argc,
                                           argv); /* getopt_long has said why */
        }
    }
    if (optind < argc)
        return plait_cmd_misused("topo: unexpected argument '%s'",
                                 argv[optind]);
    if (sources > 1)
        return plait_cmd_misused("topo: give one of --hwloc-xml, --nccl-xml "
                                 "and --synthetic");
    if (request.json && request.svg)
        return plait_cmd_misused("topo: give one of --json and --svg");
    if (request.domain && (sources || request.json || request.svg))
        return plait_cmd_misused("topo: --domain is of this machine and goes "
                                 "with no other option");
    return request.domain ? print_domain() : run_topo(&request);
}
