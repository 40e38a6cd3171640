# says: f: no resource of the type kafka_quota in it
provider "kafka" {}
---
# says: f, line 1: for_each, count and
resource "kafka_quota" "a" {
  for_each = var.all
}
