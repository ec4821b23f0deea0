// Containers get the names that their engines know them by, wherever an engine keeps its files.
#include <gtest/gtest.h>

#include "host/cgroup_id.h"
#include "tests/support/fake_host.h"

namespace flash {
namespace {

const std::string kContainerId = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const std::string kDocker = R"({"ID":"x","Name":"/web"})";
const std::string kStorage = "[{\"id\":\"" + kContainerId + "\",\"names\":[\"web\"]}]";

std::string oci(const std::string& annotations, const std::string& rest = "") {
  return "{\"annotations\":{" + annotations + "}" + rest + "}";
}
std::string task(const std::string& space, const std::string& state = "run/containerd") {
  return state + "/io.containerd.runtime.v2.task/" + space + "/" + kContainerId + "/config.json";
}

struct NameCase {
  std::string what, cgroup;
  std::vector<FakeEntry> files;
  std::string runtime;
  std::string name = "web";
  CgroupOwner owner = CgroupOwner::Systemd;
  std::string pod_uid;
};

TEST(ContainerNames, FoundWhereverTheEngineKeepsThem) {
  const std::string docker_scope = "/system.slice/docker-" + kContainerId + ".scope";
  const std::string libpod_scope = "/machine.slice/libpod-" + kContainerId + ".scope";
  const NameCase cases[] = {
      {"docker",
       docker_scope,
       {file("var/lib/docker/containers/" + kContainerId + "/config.v2.json", kDocker)},
       "docker"},
      {"data-root",
       docker_scope,
       {file("etc/docker/daemon.json", R"({"data-root":"/srv/docker/"})"),
        file("srv/docker/containers/" + kContainerId + "/config.v2.json", kDocker)},
       "docker"},
      {"docker's snap",
       docker_scope,
       {file("var/snap/docker/common/var-lib-docker/containers/" + kContainerId + "/config.v2.json",
             kDocker)},
       "docker"},
      {"its data-root",
       docker_scope,
       {file("var/snap/docker/current/config/daemon.json", R"({"data-root":"/data"})"),
        file("data/containers/" + kContainerId + "/config.v2.json", kDocker)},
       "docker"},
      {"--data-root, user namespaces",
       docker_scope,
       {file("mnt/d/165536.165536/containers/" + kContainerId + "/config.v2.json", kDocker),
        file(task("moby"), oci("", ",\"mounts\":[{\"source\":\"/mnt/d/165536.165536/containers/" +
                                       kContainerId + "/hostname\"}]"))},
       "docker"},
      {"ECS",
       "/ecs/0123456789abcdef0123456789abcdef/" + kContainerId,
       {file("var/lib/docker/containers/" + kContainerId + "/config.v2.json", kDocker)},
       "docker",
       "web",
       CgroupOwner::Unmanaged},
      {"--cgroup-parent",
       "/jobs/" + kContainerId,
       {file("var/lib/docker/containers/" + kContainerId + "/config.v2.json", kDocker)},
       "docker",
       "web",
       CgroupOwner::Unmanaged},
      {"cri-dockerd without folders of pods",
       docker_scope,
       {file("var/lib/docker/containers/" + kContainerId + "/config.v2.json",
             R"({"Name":"/web","Config":{"Labels":{"io.kubernetes.pod.uid":"u-1"}}})")},
       "docker",
       "web",
       CgroupOwner::Kubelet,
       "u-1"},
      {"podman",
       libpod_scope,
       {file("var/lib/containers/storage/overlay-containers/containers.json", kStorage)},
       "podman"},
      {"podman run --rm",
       libpod_scope,
       {file("var/lib/containers/storage/overlay-containers/containers.json", "[]"),
        file("var/lib/containers/storage/overlay-containers/volatile-containers.json", kStorage)},
       "podman"},
      {"podman's graphroot, another driver",
       libpod_scope,
       {file("etc/containers/storage.conf", "[storage]\ndriver = \"vfs\"\ngraphroot = \"/srv/pods\"\n"),
        file("srv/pods/vfs-containers/containers.json", kStorage)},
       "podman"},
      {"Quadlet",
       "/system.slice/web.service/libpod-payload-" + kContainerId,
       {file("var/lib/containers/storage/overlay-containers/containers.json", kStorage)},
       "podman",
       "web",
       CgroupOwner::Unmanaged},
      {"CRI-O",
       "/system.slice/crio-" + kContainerId + ".scope",
       {file(
           "run/containers/storage/overlay-containers/" + kContainerId + "/userdata/config.json",
           oci(R"("io.kubernetes.container.name":"web","io.container.manager":"cri-o","io.kubernetes.pod.uid":"u")"))},
       "crio",
       "web",
       CgroupOwner::Kubelet,
       "u"},
      {"containerd's CRI",
       "/kubepods/pod12345678-9abc-4def-8123-456789abcdef/" + kContainerId,
       {file(task("k8s.io"), oci(R"("io.kubernetes.cri.container-name":"web")"))},
       "containerd",
       "web",
       CgroupOwner::Kubelet,
       "12345678-9abc-4def-8123-456789abcdef"},
      {"k3s",
       "/system.slice/cri-containerd-" + kContainerId + ".scope",
       {file(task("k8s.io", "run/k3s/containerd"), oci(R"("io.kubernetes.cri.container-name":"web")"))},
       "containerd",
       "web",
       CgroupOwner::Kubelet},
      {"containerd's state",
       "/system.slice/nerdctl-" + kContainerId + ".scope",
       {file("etc/containerd/config.toml", "version = 2\nstate = \"/run/other\"\n"),
        file(task("default", "run/other"), oci(R"("nerdctl/name":"web")"))},
       "containerd"},
      {"nerdctl with cgroupfs",
       "/default/" + kContainerId,
       {file(task("default"), oci(R"("nerdctl/name":"web")"))},
       "containerd",
       "web",
       CgroupOwner::Unmanaged},
      {"a kubelet's container that no path tells",
       "/odd/" + kContainerId,
       {file(task("k8s.io"), oci(R"("io.kubernetes.cri.container-name":"web")"))},
       "containerd",
       "web",
       CgroupOwner::Kubelet},
      {"ctr run",
       "/default/web",
       {file("run/containerd/io.containerd.runtime.v2.task/default/web/config.json",
             oci("", R"(,"linux":{"cgroupsPath":"/default/web"})"))},
       "containerd",
       "web",
       CgroupOwner::Unmanaged},
      {"incus, LXD", "/lxc.payload.web", {}, "lxc", "web", CgroupOwner::Unmanaged},
      {"nobody's record", docker_scope, {}, "docker", "0123456789ab"},
      {"a malformed record",
       docker_scope,
       {file("var/lib/docker/containers/" + kContainerId + "/config.v2.json", "{\"Name\":\"/web\"")},
       "docker",
       "0123456789ab"},
      {"an unknown engine", "/odd/" + kContainerId, {}, "unknown", "0123456789ab", CgroupOwner::Unknown},
      {"named like another's, in a user's folder",
       "/user.slice/user-1000.slice/user@1000.service/docker-" + kContainerId + ".scope",
       {file("var/lib/docker/containers/" + kContainerId + "/config.v2.json", kDocker)},
       "docker",
       "0123456789ab",
       CgroupOwner::Unknown},
      {"named like a pod's, in a user's folder",
       "/user.slice/user-1000.slice/user@1000.service/kubepods/docker-" + kContainerId + ".scope",
       {file("var/lib/docker/containers/" + kContainerId + "/config.v2.json", kDocker)},
       "docker",
       "0123456789ab",
       CgroupOwner::Kubelet},
      {"in a container",
       "/lxc.payload.box/docker/" + kContainerId,
       {file("var/lib/docker/containers/" + kContainerId + "/config.v2.json", kDocker)},
       "docker",
       "0123456789ab",
       CgroupOwner::Unknown},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    FakeHost host{cgroup_v2({}), dir("run/systemd/system")};
    host.add("", c.files);
    CgroupIdentifier identifier(host.root(), *host.layout());
    const Target target = identifier.describe(c.cgroup, 1);
    EXPECT_EQ(target.container.runtime, c.runtime);
    EXPECT_EQ(target.container.name, c.name);
    EXPECT_EQ(target.name, c.name);
    EXPECT_EQ(target.owner, c.owner) << target.doubt;
    EXPECT_EQ(target.container.pod_uid, c.pod_uid);
  }
}

TEST(ContainerNames, StorageIsReadAgainOnceItChanged) {
  FakeHost host{cgroup_v2({}), file("var/lib/containers/storage/overlay-containers/containers.json", "[]")};
  ContainerNames names(host.root());
  EXPECT_FALSE(names.find("podman", kContainerId));
  host.write("var/lib/containers/storage/overlay-containers/containers.json", kStorage);
  const auto found = names.find("podman", kContainerId);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->record.name, "web");
}

TEST(ContainerNames, SaysWhereItLooks) {
  FakeHost host{cgroup_v2({}), file("etc/docker/daemon.json", R"({"data-root":"/srv/docker"})")};
  const ContainerNames names(host.root());
  EXPECT_EQ(names.places("docker"),
            "/srv/docker/containers, /var/lib/docker/containers, "
            "/var/snap/docker/common/var-lib-docker/containers, /run/containerd");
}

}  // namespace
}  // namespace flash
