// SPDX-License-Identifier: GPL-2.0
/*
 * cloche_xenpv - the virtio devices of a Xen-PV guest of cloche-vmm.
 *
 * Such a guest has neither ACPI nor a device tree to find them by.  Device n is where every guest
 * of cloche-vmm has it (vmm/vm.h), and interrupts by event channels (vmm/shim/layout.h): PORT + n
 * when it used buffers, CONFIG_PORT + n when its configuration changed.  Anywhere else the module
 * declines with ENODEV.  It is a work of its own, for the kernel, under the kernel's licence.
 *
 * An interrupt of virtio-mmio is two ways out of the guest, to read its status and to acknowledge
 * it.  That buffers were used, their event channel has said: on_used() looks at the queues at once.
 * The driver's own handler has the other channel, where events are few.
 */
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/irq.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/virtio.h>
#include <linux/virtio_ring.h>
#include <uapi/linux/virtio_mmio.h>
#include <xen/events.h>
#include <xen/xen.h>

enum { DEVICES_AT = 0xd0000000, STEP = 0x1000, DEVICES = 8 };
enum { PORT = 48, CONFIG_PORT = PORT + DEVICES };
enum { MAGIC = 0x74726976 }; /* "virt" */

struct line {
    struct platform_device *pdev;
    int config_irq;
};

/* virtio-mmio's own data begin with the device; whether they do is seen by its parent. */
static struct virtio_device *device_of(const struct line *line)
{
    struct virtio_device *vdev = platform_get_drvdata(line->pdev);

    return vdev && vdev->dev.parent == &line->pdev->dev ? vdev : NULL;
}

static irqreturn_t on_used(int irq, void *arg)
{
    const struct line *line = arg;
    struct virtio_device *vdev = device_of(line);
    struct virtqueue *vq;

    if (vdev)
        list_for_each_entry(vq, &vdev->vqs, list) vring_interrupt(irq, vq);
    else
        generic_handle_irq(line->config_irq);
    return IRQ_HANDLED;
}

static int register_device(struct platform_device *pdev, phys_addr_t at, int irq)
{
    const struct resource resources[] = {
        DEFINE_RES_MEM(at, STEP),
        DEFINE_RES_IRQ(irq),
    };
    int rc = platform_device_add_resources(pdev, resources, ARRAY_SIZE(resources));

    return rc ? rc : platform_device_add(pdev);
}

/* Interrupts come as soon as the device is registered. */
static int add(unsigned int n, phys_addr_t at)
{
    struct line *line = kzalloc(sizeof(*line), GFP_KERNEL);
    struct platform_device *pdev = platform_device_alloc("virtio-mmio", n);
    int used_irq = bind_evtchn_to_irq(PORT + n);
    int config_irq = bind_evtchn_to_irq(CONFIG_PORT + n);
    int rc;

    if (!line || !pdev)
        return -ENOMEM;
    if (used_irq < 0 || config_irq < 0)
        return used_irq < 0 ? used_irq : config_irq;
    line->pdev = pdev;
    line->config_irq = config_irq;
    rc = request_irq(used_irq, on_used, 0, "cloche_xenpv", line);
    return rc ? rc : register_device(pdev, at, config_irq);
}

static bool is_device_at(phys_addr_t at)
{
    void __iomem *regs = ioremap(at, STEP);
    bool is = false;

    if (!regs)
        return false;
    is = readl(regs + VIRTIO_MMIO_MAGIC_VALUE) == MAGIC && readl(regs + VIRTIO_MMIO_DEVICE_ID);
    iounmap(regs);
    return is;
}

/* There is no way out: the devices stay as long as the guest. */
static int __init cloche_xenpv_init(void)
{
    if (!xen_pv_domain())
        return -ENODEV;
    for (unsigned int n = 0; n < DEVICES; n++) {
        phys_addr_t at = DEVICES_AT + (phys_addr_t)n * STEP;
        int rc = is_device_at(at) ? add(n, at) : 0;

        if (rc < 0)
            pr_err("cloche_xenpv: device %u: %d\n", n, rc);
    }
    return 0;
}
module_init(cloche_xenpv_init);

MODULE_DESCRIPTION("virtio devices of a Xen-PV guest of cloche-vmm");
MODULE_LICENSE("GPL");
