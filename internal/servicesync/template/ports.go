package template

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// MostPorts bounds the ports of a Service and of a published slice.
const MostPorts = 100

func readPorts(from *corev1.Service, _ Carry, to *Template) {
	for _, p := range from.Spec.Ports {
		p.NodePort = 0
		p.AppProtocol = clone(p.AppProtocol)
		to.Ports = append(to.Ports, p)
	}
}

func admitPorts(from *Template, _ Carry, to *Template) {
	for _, p := range from.Ports {
		to.Ports = append(to.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: p.TargetPort})
	}
}

// applyPorts keeps the node ports that this cluster gave the replica, if Services of
// its type have any.
func applyPorts(from *Template, to *corev1.Service) {
	have := to.Spec.Ports
	to.Spec.Ports = slices.Clone(from.Ports)
	if from.Type != corev1.ServiceTypeNodePort && from.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	for i := range to.Spec.Ports {
		p := &to.Spec.Ports[i]
		for _, h := range have {
			if h.Name == p.Name && h.Protocol == p.Protocol {
				p.NodePort = h.NodePort
			}
		}
	}
}

func checkPorts(t *Template) error {
	if len(t.Ports) > MostPorts {
		return fmt.Errorf("it has %d ports, and %d is the most", len(t.Ports), MostPorts)
	}
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	names, numbers := make(map[string]bool), make(map[number]bool)
	for _, p := range t.Ports {
		if err := CheckPort(p.Name, p.Protocol, ptr.Deref(p.AppProtocol, ""), &p.Port); err != nil {
			return err
		}
		n := number{p.Protocol, p.Port}
		switch {
		case names[p.Name] || numbers[n] || len(t.Ports) > 1 && p.Name == "":
			return fmt.Errorf("port %.80q cannot be told from another", p.Name)
		case p.TargetPort.Type == intstr.Int && (p.TargetPort.IntVal < 0 || p.TargetPort.IntVal > 65535),
			p.TargetPort.Type == intstr.String && len(content.IsDNS1123Label(p.TargetPort.StrVal)) > 0:
			return fmt.Errorf("port %.80q has the target %.80q", p.Name, p.TargetPort.String())
		}
		names[p.Name], numbers[n] = true, true
	}
	return nil
}

// CheckPort returns why an API server would refuse a port. number is nil if the port
// has none.
func CheckPort(name string, protocol corev1.Protocol, app string, number *int32) error {
	switch {
	case name != "" && len(content.IsDNS1123Label(name)) > 0:
		return fmt.Errorf("a port has the name %.80q", name)
	case protocol != "" && protocol != corev1.ProtocolTCP && protocol != corev1.ProtocolUDP && protocol != corev1.ProtocolSCTP:
		return fmt.Errorf("a port has the protocol %.40q", protocol)
	case app != "" && len(content.IsLabelKey(app)) > 0:
		return fmt.Errorf("a port has the application protocol %.80q", app)
	case number != nil && (*number < 1 || *number > 65535):
		return fmt.Errorf("a port is %d", *number)
	}
	return nil
}
