{{- define "tidegate.name" -}}
tidegate-webhook
{{- end }}

{{- define "tidegate.labels" -}}
app.kubernetes.io/name: tidegate
app.kubernetes.io/component: webhook
{{- end }}

{{- define "tidegate.metadata" -}}
name: {{ include "tidegate.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "tidegate.labels" . | nindent 2 }}
{{- end }}

{{- define "tidegate.image" -}}
{{ .Values.image | default (printf "tidegate:%s" .Chart.AppVersion) }}
{{- end }}

{{- define "tidegate.runAs" -}}
{{- $runAs := toString .Values.runAs }}
{{- if eq $runAs "platform" -}}
platform
{{- else if ne $runAs "" -}}
{{ int64 .Values.runAs }}
{{- else if eq .Values.certs "openshift" -}}
platform
{{- else -}}
65532
{{- end }}
{{- end }}
