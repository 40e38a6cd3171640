# resource "kafka_quota" "no" { }
resource "kafka_quota" "a" {
  entity_type = "client-id" // "}"
  config = { producer_byte_rate = "1", "consumer_byte_rate" : 2 }
}
resource "kafka_quota" "b" {
  entity_type = "user"
  entity_name = "$${a}"
  config = {
    "request_percentage" = 5
  }
  lifecycle {
    prevent_destroy = true
  }
}
resource "kafka_quota" "c" {
  entity_type = "user"
  entity_name = var.user
  config = { "request_percentage" = 5 }
}
resource "confluent_kafka_client_quota" "d" {
}
