# Two accounts that share a journal of xbernetes, in two regions: the owner, with the bucket
# and the topic, and a member. docs/aws.md walks through it. The policies are made from
# what xb aws policy prints.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source                = "hashicorp/aws"
      version               = ">= 5.0"
      configuration_aliases = [aws.owner, aws.member]
    }
  }
}

variable "bucket" {
  description = "Name of the bucket to create, for nothing but the journal."
  type        = string
}

variable "prefix" {
  description = "What the names of the journal's objects begin with."
  type        = string
  default     = "prod"
}

variable "member_account" {
  description = "The other account, whose server writes to the journal too."
  type        = string
}

variable "server_service" {
  description = "The service of AWS that runs the servers, which take on their roles."
  type        = string
  default     = "ec2.amazonaws.com"
}

variable "sns_service" {
  description = "As xb aws policy --only queue prints it for the member's queue; another one between opt-in regions and others."
  type        = string
  default     = "sns.amazonaws.com"
}

locals {
  journal = {
    bucket         = var.bucket
    prefix         = var.prefix
    member_account = var.member_account
    topic          = aws_sns_topic.records.arn
  }
  trust = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = var.server_service }
      Action    = "sts:AssumeRole"
    }]
  })
}

# The owner's account.

# Versioning stays off: no object of a journal is ever replaced, and with versioning a
# deleted record would stay, and cost, as an old version.
resource "aws_s3_bucket" "journal" {
  provider = aws.owner
  bucket   = var.bucket

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_ownership_controls" "journal" {
  provider = aws.owner
  bucket   = aws_s3_bucket.journal.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_public_access_block" "journal" {
  provider                = aws.owner
  bucket                  = aws_s3_bucket.journal.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "journal" {
  provider = aws.owner
  bucket   = aws_s3_bucket.journal.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_policy" "journal" {
  provider = aws.owner
  bucket   = aws_s3_bucket.journal.id
  policy   = templatefile("${path.module}/policies/bucket.json.tftpl", local.journal)
}

resource "aws_sns_topic" "records" {
  provider = aws.owner
  name     = "xb-${var.prefix}"
}

resource "aws_sns_topic_policy" "records" {
  provider = aws.owner
  arn      = aws_sns_topic.records.arn
  policy   = templatefile("${path.module}/policies/topic.json.tftpl", merge(local.journal, { queue = aws_sqs_queue.member.arn }))
}

resource "aws_sqs_queue" "owner" {
  provider                  = aws.owner
  name                      = "xb-${var.prefix}-owner"
  message_retention_seconds = 300
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue_policy" "owner" {
  provider  = aws.owner
  queue_url = aws_sqs_queue.owner.id
  policy = templatefile("${path.module}/policies/queue.json.tftpl", merge(local.journal, {
    queue       = aws_sqs_queue.owner.arn
    sns_service = "sns.amazonaws.com"
  }))
}

resource "aws_sns_topic_subscription" "owner" {
  provider             = aws.owner
  topic_arn            = aws_sns_topic.records.arn
  protocol             = "sqs"
  endpoint             = aws_sqs_queue.owner.arn
  raw_message_delivery = true
}

resource "aws_iam_role" "owner" {
  provider           = aws.owner
  name               = "xb-${var.prefix}-owner"
  assume_role_policy = local.trust
}

resource "aws_iam_role_policy" "owner" {
  provider = aws.owner
  name     = "journal"
  role     = aws_iam_role.owner.id
  policy   = templatefile("${path.module}/policies/owner.json.tftpl", merge(local.journal, { queue = aws_sqs_queue.owner.arn }))
}

# The member's account, perhaps in another region.

resource "aws_sqs_queue" "member" {
  provider                  = aws.member
  name                      = "xb-${var.prefix}-member"
  message_retention_seconds = 300
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue_policy" "member" {
  provider  = aws.member
  queue_url = aws_sqs_queue.member.id
  policy = templatefile("${path.module}/policies/queue.json.tftpl", merge(local.journal, {
    queue       = aws_sqs_queue.member.arn
    sns_service = var.sns_service
  }))
}

# In the topic's region and account, as SNS wants it; the queue's policy lets it deliver.
resource "aws_sns_topic_subscription" "member" {
  provider             = aws.owner
  topic_arn            = aws_sns_topic.records.arn
  protocol             = "sqs"
  endpoint             = aws_sqs_queue.member.arn
  raw_message_delivery = true
  depends_on           = [aws_sqs_queue_policy.member]
}

resource "aws_iam_role" "member" {
  provider           = aws.member
  name               = "xb-${var.prefix}-member"
  assume_role_policy = local.trust
}

resource "aws_iam_role_policy" "member" {
  provider = aws.member
  name     = "journal"
  role     = aws_iam_role.member.id
  policy   = templatefile("${path.module}/policies/writer.json.tftpl", merge(local.journal, { queue = aws_sqs_queue.member.arn }))
}

output "topic_arn" {
  description = "For --notify of both servers."
  value       = aws_sns_topic.records.arn
}

output "queue_arns" {
  description = "For --notify of each server."
  value       = { owner = aws_sqs_queue.owner.arn, member = aws_sqs_queue.member.arn }
}
